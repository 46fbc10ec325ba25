-- What recovery found, the latest first, each with the attempt that stalled and the one that went on.
select
    i.number, i.found_at, i.kind, i.basis::text, i.dag_id, i.run_id, i.task_id, i.map_index, i.why, i.decision::text,
    n.started_at, i.detected_after, a.owner ->> 'hostname', a.died_in
from aiflow.incident i
left join aiflow.attempt a on a.execution_id = i.execution_id and a.fence = i.fence
left join aiflow.attempt n on n.execution_id = i.execution_id and n.fence = i.fence + 1
where i.number < %(before)s and (i.report or i.decision <> 'leave') and i.dag_id = any (%(dag_ids)s::text[])
order by i.number desc
limit %(limit)s
