-- The first answer stands. For a doubt its intent's number will do: everybody who waits for it is told. A question that
-- its task asks no more, for it was cleared since or asked again about another request, takes none; one that assigns
-- users takes none but theirs.
with target as materialized (
    select q.number from aiflow.question q
    where q.number = %(number)s and not exists (
        select from aiflow.attempt a
        where a.execution_id = q.execution_id and a.sign in ('cleared', 'made_again') and a.started_at > q.asked_at
            and not exists (                   -- our own recovery's clear changes nothing about what is asked
                select from aiflow.requeue r
                where r.execution_id = a.execution_id and r.fence = a.fence - 1 and r.state = 'consumed'
            )
    ) and not (q.kind in ('approval', 'conflict') and exists (
        select from aiflow.question later
        where later.execution_id = q.execution_id and later.answer is null
            and coalesce(later.asked_again_at, later.asked_at) > coalesce(q.asked_again_at, q.asked_at)
            and later.kind = q.kind and later.namespace = q.namespace
            and later.effect_name = q.effect_name and later.key = q.key
    ))
    union all
    select q.number from aiflow.question q
    join aiflow.intent i on i.intent_id = q.intent_id
    where i.number = %(number)s and q.kind = 'doubt'
)
update aiflow.question q set answer = %(option)s, answered_by = %(by)s, answered_at = clock_timestamp(), note = %(note)s
from target t
where q.number = t.number and q.answer is null and %(option)s = any (q.options)
    and (cardinality(q.assigned_users) = 0 or %(user)s = any (q.assigned_users))
returning q.number
