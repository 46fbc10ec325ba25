-- The events that were committed with a step.
select e.data
from aiflow.step s
join aiflow.event e
    on e.execution_id = s.execution_id and e.fence = s.fence and e.kind = 'step'
    and e.at between s.recorded_at - interval '5 s' and s.recorded_at + interval '5 s'
where s.execution_id = %(execution_id)s and s.generation = %(generation)s and s.step_key = %(step_key)s
order by e.at
limit 500
