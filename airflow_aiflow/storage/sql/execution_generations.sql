-- Which generations are recorded of an execution, and from which fences.
select s.fence, s.generation from aiflow.step s where s.execution_id = %(execution_id)s group by s.fence, s.generation
union
select i.fence, i.generation
from aiflow.effect e
join aiflow.intent i on i.effect_id = e.effect_id and i.execution_id = e.execution_id
where e.execution_id = %(execution_id)s
