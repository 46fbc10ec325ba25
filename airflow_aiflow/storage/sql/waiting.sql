-- What waits for a person, by number. A doubt is found by its partial index; an intent that nobody put in doubt through
-- the executions that lost their attempt: their lease has lapsed, or they stopped and hold none. The view is asked from
-- the side (`lateral ... offset 0`): it reads the clock, and so is never merged into a query.
--
-- Not covered: of an execution that lost its attempt all effects are read, and one that succeeded is taken at its word.
with dead as materialized (
    select l.execution_id from aiflow.lease l where l.expires_at < statement_timestamp()
    union all
    select x.execution_id from aiflow.execution x
    where x.stopped and not exists (select from aiflow.lease l where l.execution_id = x.execution_id)
),
unsettled as materialized (
    select e.effect_id from aiflow.effect e where e.doubted
    union all
    select e.effect_id from dead d
    cross join lateral (
        select o.effect_id from aiflow.effect o where o.execution_id = d.execution_id and o.state = 'intended' offset 0
    ) e
),
doubt as (
    select n.intent_number as number, n.intended_at as since, to_jsonb(n) as effect, to_jsonb(asked) as question
    from unsettled u
    cross join lateral (select v.* from aiflow.effect_now v where v.effect_id = u.effect_id offset 0) n
    left join lateral (
        select q.* from aiflow.question_now q
        where q.intent_id = n.intent_id and q.kind = 'doubt' and q.answer is null
        order by q.number desc
        limit 1
    ) asked on true
    where n.state in ('in_doubt', 'intended') and (n.state = 'in_doubt' or n.gone_in <= 0) and n.intent_number > %(after)s
),
asked as (
    select q.number, q.asked_at, null::jsonb, to_jsonb(q) from aiflow.question_now q
    where q.answer is null and q.kind <> 'doubt' and q.number > %(after)s
        and not exists (   -- its task asks it no more: cleared since, or asked again about another request
            select from aiflow.question mine
            where mine.number = q.number and (exists (
                select from aiflow.attempt a
                where a.execution_id = mine.execution_id and a.sign in ('cleared', 'made_again')
                    and a.started_at > mine.asked_at
                    and not exists (                   -- our own recovery's clear changes nothing about what is asked
                        select from aiflow.requeue r
                        where r.execution_id = a.execution_id and r.fence = a.fence - 1 and r.state = 'consumed'
                    )
            ) or mine.kind in ('approval', 'conflict') and exists (
                select from aiflow.question later
                where later.execution_id = mine.execution_id and later.answer is null
                    and coalesce(later.asked_again_at, later.asked_at)
                        > coalesce(mine.asked_again_at, mine.asked_at)
                    and later.kind = mine.kind and later.namespace = mine.namespace
                    and later.effect_name = mine.effect_name and later.key = mine.key
            ))
        )
)
select number, since, effect, question from doubt
union all
select * from asked
order by number
limit %(limit)s
