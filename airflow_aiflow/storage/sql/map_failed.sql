-- Items of a map that have no result, in the order of the list.
select step_key, name, number, item_key, state::text, failures, kills, error, fence, at
from aiflow.failed_item i
where i.execution_id = %(execution_id)s and i.generation = %(generation)s and i.name = %(map)s and not exists (
    select from aiflow.step s
    where s.execution_id = i.execution_id and s.generation = i.generation and s.step_key = i.step_key
)
order by i.number
limit %(limit)s
