-- Lock executions that are still as they were found: a take-over, which locks the same row first, waits or has come before.
-- Whoever cleans the same ones is not waited for.
select x.execution_id from aiflow.execution x
where x.execution_id = any (%(ids)s::bigint[])
    and x.state in ('succeeded', 'failed', 'cancelled') and x.finished_at < %(before)s
order by x.execution_id
for update of x skip locked
