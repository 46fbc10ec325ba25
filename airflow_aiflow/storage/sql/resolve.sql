-- A person's word on an intent: in doubt, or open with its owner presumed gone. A compare-and-set: the first word wins.
-- As in `settle` and `decide` the intent is locked before its effect. Where tasks wait for the word, one of them must
-- take it from this user.
with target as materialized (
    select i.intent_id from aiflow.intent i
    where i.number = %(number)s
        or i.intent_id = (select q.intent_id from aiflow.question q where q.number = %(number)s)
),
i as (
    update aiflow.intent n set
        decision = %(decision)s::text::aiflow.intent_decision, decided_by = %(by)s, decided_at = clock_timestamp(),
        given = %(given)s, given_sha256 = %(given_sha256)s, given_seal = %(given_seal)s
    from target t, aiflow.effect o
    where n.intent_id = t.intent_id and n.decision is null and n.outcome is null
        and o.effect_id = n.effect_id and o.intent_no = n.no
        and (o.state = 'in_doubt' or (
            o.state = 'intended' and (select v.gone_in from aiflow.effect_now v where v.effect_id = o.effect_id) <= 0
        ))
        and coalesce((
            select bool_or(cardinality(q.assigned_users) = 0 or %(user)s = any (q.assigned_users)) from aiflow.question q
            where q.intent_id = n.intent_id and q.kind = 'doubt' and q.answer is null
        ), true)
    returning n.effect_id, n.no, n.number
),
e as (
    update aiflow.effect o set
        state = case when %(decision)s::text = 'happened' then 'succeeded' else 'failed' end::aiflow.effect_state,
        succeeded_no = case when %(decision)s::text = 'happened' then i.no end
    from i
    where o.effect_id = i.effect_id and o.intent_no = i.no and o.state in ('in_doubt', 'intended')
    returning i.number
),
w as (
    insert into aiflow.word (number, kind, said_by, note) select number, 'resolved', %(by)s, %(note)s from e
)
select true from e
