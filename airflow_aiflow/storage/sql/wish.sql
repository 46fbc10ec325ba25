-- Wish something of the next attempts of executions; the last wish counts.
insert into aiflow.wish (execution_id, fence, on_clear)
select x.execution_id, x.fence, %(on_clear)s::aiflow.clear_word
from aiflow.execution x
where x.execution_id = any (%(execution_ids)s)
on conflict (execution_id, fence) do update
set on_clear = excluded.on_clear, at = clock_timestamp(), cleared = false
returning execution_id
