-- Every call of the effect that has an intent of this number, with what persons said about it.
select
    i.number, i.intended_at, i.settled_at, i.outcome::text, i.decision::text, i.decided_by, i.decided_at,
    coalesce(resolved.note, ''), released.said_by, released.said_at, coalesce(released.note, ''),
    x.dag_id, x.run_id, x.task_id, x.map_index, a.number
from aiflow.intent asked
join aiflow.intent i on i.effect_id = asked.effect_id
join aiflow.execution x on x.execution_id = i.execution_id
join aiflow.attempt a on a.execution_id = i.execution_id and a.fence = i.fence
left join aiflow.word resolved on resolved.number = i.number and resolved.kind = 'resolved'
left join aiflow.word released on released.number = i.number and released.kind = 'released'
where asked.number = %(number)s
order by i.no
