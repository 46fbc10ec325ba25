select
    e.execution_id, e.fence, e.generation, e.state::text,
    a.ti_id, a.try_number, a.max_tries, a.retries, a.clear_number, a.run_after, a.owner,
    coalesce(extract(epoch from l.expires_at - clock_timestamp()), 0)::double precision,
    e.heard_at is not null, a.upstream_digest, r.clear_number, coalesce(r.clear_until, r.clear_number + 1),
    w.on_clear::text
from aiflow.execution e
join aiflow.attempt a on a.execution_id = e.execution_id and a.fence = e.fence
left join aiflow.lease l on l.execution_id = e.execution_id and l.fence = e.fence
left join aiflow.requeue r on r.execution_id = e.execution_id and r.fence = e.fence and r.state in ('marked', 'cleared')
-- A wish whose clear was not confirmed counts for as long as a request may take that nobody heard the end of.
left join aiflow.wish w
    on w.execution_id = e.execution_id and w.fence = e.fence
    and (w.cleared or w.at > clock_timestamp() - interval '10 minutes')
where e.identity = %(identity)s
