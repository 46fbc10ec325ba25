-- The names of the arguments of a map's items: one of them keeps them for all.
select substring(s.arguments from 1 for %(names)s)
from aiflow.step s
where s.execution_id = %(execution_id)s and s.generation = %(generation)s and s.name = %(name)s and s.kind = %(kind)s
    and s.arguments is not null
limit 1
