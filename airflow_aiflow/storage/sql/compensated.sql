with held as materialized (
    select execution_id from aiflow.lease
    where execution_id = %(execution_id)s and fence = %(fence)s and expires_at > clock_timestamp()
    for share
),
e as (
    update aiflow.effect o set state = 'compensated'
    from held, aiflow.intent i
    where i.intent_id = %(intent_id)s and o.effect_id = i.effect_id and o.succeeded_no = i.no and o.state = 'succeeded'
    returning 1
)
select exists (select from e) or exists (
    select from held, aiflow.intent i
    join aiflow.effect o on o.effect_id = i.effect_id and o.succeeded_no = i.no
    where i.intent_id = %(intent_id)s and o.state = 'compensated'
)
