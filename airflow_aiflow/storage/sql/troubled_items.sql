-- The items of a generation that have no result and are known for it; before them a row that says how the attempt before
-- this one ended.
select null::bytea, '', 0, null, coalesce(ending::text, ''), 0, 0, null::bytea, fence, started_at
from aiflow.attempt
where execution_id = %(execution_id)s and fence = %(fence)s - 1
union all
select step_key, name, number, item_key, state::text, failures, kills, error, fence, at
from aiflow.failed_item i
where execution_id = %(execution_id)s and generation = %(generation)s and not exists (
    select from aiflow.step s
    where s.execution_id = i.execution_id and s.generation = i.generation and s.step_key = i.step_key
)
