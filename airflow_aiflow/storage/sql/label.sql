-- Put an attempt's labels in the place of its execution's; those of a superseded attempt are not taken.
with held as (
    select x.execution_id from aiflow.execution x where x.execution_id = %(execution_id)s and x.fence = %(fence)s
),
gone as (
    delete from aiflow.label b using held
    where b.execution_id = held.execution_id and b.name <> all (%(names)s::text[])
)
insert into aiflow.label as b (execution_id, name, value)
select held.execution_id, w.name, w.value
from held
cross join unnest(%(names)s::text[], %(values)s::text[]) w (name, value)
on conflict (execution_id, name) do update set value = excluded.value where b.value <> excluded.value
returning b.name
