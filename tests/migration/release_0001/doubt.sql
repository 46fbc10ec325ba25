-- Only under a live lease of ours, and only the current intent of an owner that is not live, or of ourselves.
with held as materialized (
    select execution_id, fence from aiflow.lease
    where execution_id = %(execution_id)s and fence = %(fence)s and expires_at > clock_timestamp()
    for share
),
e as (
    update aiflow.effect o set state = 'in_doubt'
    from held, aiflow.intent i
    where i.intent_id = %(intent_id)s and o.effect_id = i.effect_id and o.intent_no = i.no and o.state = 'intended'
        and not exists (
            select from aiflow.lease l
            where l.execution_id = i.execution_id and l.fence = i.fence and l.expires_at > clock_timestamp()
                and l.execution_id <> held.execution_id
        )
    returning 1
)
select exists (select from e) or exists (
    select from held, aiflow.intent i
    join aiflow.effect o on o.effect_id = i.effect_id and o.intent_no = i.no
    where i.intent_id = %(intent_id)s and o.state = 'in_doubt'
)
