-- A compare-and-set on (state, intent number) under a live lease of ours: the first decision wins.
with held as materialized (
    select execution_id from aiflow.lease
    where execution_id = %(execution_id)s and fence = %(fence)s and expires_at > clock_timestamp()
    for share
),
i as (
    update aiflow.intent n set
        decision = %(decision)s::text::aiflow.intent_decision, decided_by = %(decided_by)s, decided_at = clock_timestamp()
    from held, aiflow.effect o
    where n.intent_id = %(intent_id)s and n.decision is null and n.outcome is null
        and o.effect_id = n.effect_id and o.intent_no = n.no and o.state = 'in_doubt'
    returning n.effect_id, n.no
),
e as (
    update aiflow.effect o set
        state = case when %(decision)s::text = 'happened' then 'succeeded' else 'failed' end::aiflow.effect_state,
        succeeded_no = case when %(decision)s::text = 'happened' then i.no end
    from i
    where o.effect_id = i.effect_id and o.intent_no = i.no and o.state = 'in_doubt'
    returning 1
)
select exists (select from e) or exists (
    select from held, aiflow.intent n
    where n.intent_id = %(intent_id)s and n.decision::text = %(decision)s and n.decided_by = %(decided_by)s
)
