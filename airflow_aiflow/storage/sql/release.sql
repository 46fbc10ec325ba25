-- A person's word that what this intent did may be done once more; the intent is locked before its effect.
with target as materialized (
    select i.intent_id, i.effect_id, i.no, i.number from aiflow.intent i where i.number = %(number)s for update
),
e as (
    update aiflow.effect o set state = 'released'
    from target t
    where o.effect_id = t.effect_id and o.succeeded_no = t.no and o.state = 'succeeded'
    returning t.number
),
w as (
    insert into aiflow.word (number, kind, said_by, note) select number, 'released', %(by)s, %(note)s from e
)
select true from e
