-- The items of a run that have no result, in the order of tasks and lists.
select
    x.dag_id, x.run_id, x.task_id, x.map_index, x.execution_id, i.generation,
    i.step_key, i.name, i.number, i.item_key, i.state::text, i.failures, i.kills, i.error, i.fence, i.at
from aiflow.execution x
join aiflow.failed_item i on i.execution_id = x.execution_id and i.generation = x.generation
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
    and (%(task_id)s::text is null or x.task_id = %(task_id)s::text)
    and (%(map_index)s::integer is null or x.map_index = %(map_index)s::integer)
    and (%(name)s::text is null or i.name = %(name)s::text)
    and not exists (
        select from aiflow.step s
        where s.execution_id = i.execution_id and s.generation = i.generation and s.step_key = i.step_key
    )
order by x.task_id, x.map_index, i.name, i.number
limit %(limit)s
