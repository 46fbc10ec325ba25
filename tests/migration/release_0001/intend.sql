-- Commit 1 of an effect. The lease's row is locked: a plain read would let an intent commit after a take-over. No row
-- = lapsed or superseded; a row without a number = the effect's row does not allow it (or it is this very intent's).
with held as materialized (
    select execution_id, fence from aiflow.lease
    where execution_id = %(execution_id)s and fence = %(fence)s and expires_at > clock_timestamp()
    for share
),
e as (
    insert into aiflow.effect as o (identity, namespace, name, key, state, intent_no, execution_id)
    select %(identity)s, %(namespace)s, %(name)s, %(key)s, 'intended', 1, execution_id from held
    on conflict (identity) do update set
        state = 'intended',
        intent_no = o.intent_no + 1,
        succeeded_no = null,
        repeat = o.repeat + case when o.state = 'failed' then 0 else 1 end,
        execution_id = excluded.execution_id
    where o.state in ('failed', 'released', 'compensated') and o.intent_no = %(seen)s
    returning effect_id, intent_no, repeat
),
i as (
    insert into aiflow.intent (
        intent_id, effect_id, no, repeat, execution_id, fence, generation, request, request_sha256, request_fp, timeout_s
    )
    select
        %(intent_id)s, e.effect_id, e.intent_no, e.repeat, %(execution_id)s, %(fence)s, %(generation)s,
        %(request)s, %(request_sha256)s, %(request_fp)s, %(timeout)s
    from e
    returning no, repeat
)
select i.no, i.repeat from held left join i on true
