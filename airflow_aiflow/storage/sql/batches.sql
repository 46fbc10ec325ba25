-- What is told of maps: the first and the latest progress of the last attempt of each execution that is at work, or has
-- ended of late. Only the latest events are looked through.
with lately as materialized (
    select l.execution_id from aiflow.lease l where l.expires_at > statement_timestamp()
    union
    (
        select x.execution_id from aiflow.execution x
        where x.finished_at > statement_timestamp() - make_interval(hours => %(hours)s::integer)
        order by x.finished_at desc
        limit %(most)s
    )
)
select
    x.dag_id, x.run_id, x.task_id, x.map_index, x.state::text, coalesce(l.expires_at > clock_timestamp(), false),
    x.execution_id, x.generation, x.fence, x.finished_at, a.started_at, e.at, e.data, statement_timestamp()
from lately
join aiflow.execution x on x.execution_id = lately.execution_id
join aiflow.attempt a on a.execution_id = x.execution_id and a.fence = x.fence
left join aiflow.lease l on l.execution_id = x.execution_id and l.fence = x.fence
cross join lateral (
    select e.seq, e.at, e.data
    from (
        select e.seq, e.at, e.kind, e.data from aiflow.event e
        where e.execution_id = x.execution_id and e.fence = x.fence
        order by e.seq desc
        limit %(events)s
    ) e
    where e.kind = 'progress'
) e
where x.dag_id = any (%(dag_ids)s::text[])
order by x.execution_id, e.seq
