-- As `release`, by an attempt that carries a person's word out.
with held as materialized (
    select execution_id from aiflow.lease
    where execution_id = %(execution_id)s and fence = %(fence)s and expires_at > clock_timestamp()
    for share
),
target as materialized (
    select i.intent_id, i.effect_id, i.no, i.number from aiflow.intent i, held
    where i.intent_id = %(intent_id)s
    for update of i
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
select exists (select from e) or exists (
    select from held, aiflow.intent i
    join aiflow.effect o on o.effect_id = i.effect_id and o.succeeded_no = i.no
    where i.intent_id = %(intent_id)s and o.state = 'released'
)
