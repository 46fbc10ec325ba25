-- Executions that ended before a moment, page by page along the primary key, and the page's last row whatever it is.
with page as materialized (
    select
        x.execution_id, x.dag_id, x.run_id,
        x.state in ('succeeded', 'failed', 'cancelled') and x.finished_at < %(before)s
            and (%(dag_ids)s::text[] is null or x.dag_id = any (%(dag_ids)s::text[])) as old
    from aiflow.execution x
    where x.execution_id > %(after)s
    order by x.execution_id
    limit %(most)s
)
select execution_id, dag_id, run_id, old from page
where old or execution_id = (select max(execution_id) from page)
order by execution_id
