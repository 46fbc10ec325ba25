-- What recovery found, the latest first, each with the attempt that stalled and the one that went on.
with found as materialized (
    select i.* from aiflow.incident i
    where i.number < %(before)s and (i.report or i.decision <> 'leave') and i.dag_id = any (%(dag_ids)s::text[])
    order by i.number desc
    limit %(limit)s
)
select
    i.number, i.found_at, i.kind, i.basis::text, i.dag_id, i.run_id, i.task_id, i.map_index, i.why, i.decision::text,
    (
        select n.started_at from aiflow.attempt n
        where n.execution_id = i.execution_id and n.fence = i.fence + 1
    ),
    i.detected_after, a.owner ->> 'hostname', a.died_in
from found i
left join lateral (                            -- `offset 0`: by the key, whatever the statistics say
    select o.owner, o.died_in from aiflow.attempt o
    where o.execution_id = i.execution_id and o.fence = i.fence
    offset 0
) a on true
order by i.number desc
