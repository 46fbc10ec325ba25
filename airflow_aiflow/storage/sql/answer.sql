-- The first answer stands. For a doubt its intent's number will do: everybody who waits for it is told.
with target as materialized (
    select q.number from aiflow.question q where q.number = %(number)s
    union all
    select q.number from aiflow.question q
    join aiflow.intent i on i.intent_id = q.intent_id
    where i.number = %(number)s and q.kind = 'doubt'
)
update aiflow.question q set answer = %(option)s, answered_by = %(by)s, answered_at = clock_timestamp(), note = %(note)s
from target t
where q.number = t.number and q.answer is null and %(option)s = any (q.options)
returning q.number
