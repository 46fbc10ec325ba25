-- The same `identity` is the same question; one without an answer notes who asks now. No row = the lease is not ours.
with held as materialized (
    select execution_id from aiflow.lease
    where execution_id = %(execution_id)s and fence = %(fence)s and expires_at > clock_timestamp()
    for share
),
put as (
    insert into aiflow.question as q (
        identity, kind, name, namespace, effect_name, key, intent_id, execution_id, subject, body, options,
        assigned_users, expires_at
    )
    select
        %(identity)s, %(kind)s::text::aiflow.question_kind, %(name)s, %(namespace)s, %(effect_name)s, %(key)s,
        %(intent_id)s, execution_id, %(subject)s, %(body)s, %(options)s, %(assigned_users)s,
        clock_timestamp() + make_interval(secs => %(timeout)s::double precision)
    from held
    on conflict (identity) do update set execution_id = excluded.execution_id, asked_again_at = clock_timestamp()
    where q.answer is null
)
select true from held
