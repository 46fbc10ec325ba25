select
    e.execution_id, e.fence, e.generation, e.state::text,
    a.ti_id, a.try_number, a.max_tries, a.retries, a.clear_number, a.run_after, a.owner,
    coalesce(extract(epoch from l.expires_at - clock_timestamp()), 0)::double precision
from aiflow.execution e
join aiflow.attempt a on a.execution_id = e.execution_id and a.fence = e.fence
left join aiflow.lease l on l.execution_id = e.execution_id and l.fence = e.fence
where e.identity = %(identity)s
