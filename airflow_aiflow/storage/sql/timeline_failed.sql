-- How many items of each map have no result.
select i.name, count(*)::integer
from aiflow.failed_item i
where i.execution_id = %(execution_id)s and i.generation = %(generation)s and i.state in ('failed', 'dead')
    and not exists (
        select from aiflow.step s
        where s.execution_id = i.execution_id and s.generation = i.generation and s.step_key = i.step_key
    )
group by i.name
