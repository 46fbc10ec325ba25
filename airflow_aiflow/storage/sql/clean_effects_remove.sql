-- Delete settled effects with all their intents and what persons said about them. Who works on one at this moment is not
-- waited for; one with an intent that could not be locked, or with a question that is open, stays.
with i as materialized (
    select n.effect_id, n.intent_id, n.number from aiflow.intent n
    where n.effect_id = any (%(effects)s::bigint[])
    for update of n skip locked
),
e as materialized (
    select o.effect_id, o.intent_no from aiflow.effect o
    where o.effect_id = any (%(effects)s::bigint[]) and o.execution_id = any (%(ids)s::bigint[]) and o.state >= 'failed'
    for update of o skip locked
),
whole as materialized (
    select e.effect_id from e
    where e.intent_no = (select count(*) from i where i.effect_id = e.effect_id)
        and not exists (
            select from i join aiflow.question q on q.intent_id = i.intent_id
            where i.effect_id = e.effect_id and q.answer is null
        )
),
gone as materialized (
    select i.* from i join whole on whole.effect_id = i.effect_id
),
told as (
    delete from aiflow.told t using gone where t.number = gone.number returning true
),
word as (
    delete from aiflow.word t using gone where t.number = gone.number returning true
),
question as (
    delete from aiflow.question t using gone where t.intent_id = gone.intent_id returning true
),
intent as (
    delete from aiflow.intent t using gone where t.intent_id = gone.intent_id returning true
),
effect as (
    delete from aiflow.effect t using whole where t.effect_id = whole.effect_id returning true
)
select
    (select count(*) from effect), (select count(*) from intent), (select count(*) from question),
    (select count(*) from word), (select count(*) from told)
