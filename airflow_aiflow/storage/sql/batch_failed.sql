-- How many items of these executions' maps have no result.
select i.execution_id, i.name, count(*)::integer
from unnest(%(executions)s::bigint[]) w (execution_id)
join aiflow.execution x on x.execution_id = w.execution_id
join aiflow.failed_item i
    on i.execution_id = x.execution_id and i.generation = x.generation and i.state in ('failed', 'dead')
where not exists (
    select from aiflow.step s
    where s.execution_id = i.execution_id and s.generation = i.generation and s.step_key = i.step_key
)
group by i.execution_id, i.name
