-- What looks stalled, the longest first, or the one execution that is asked for, as it stands. Every way in is small: the
-- leases, and what execution_open holds. What is to be left alone for now is left out before the limit, so that nothing
-- is starved by what was looked at already.
with clock as materialized (
    select
        statement_timestamp() as now,
        -- Who could not renew a lease while the server was away gets the time to do so.
        statement_timestamp() - pg_catalog.pg_postmaster_start_time() > make_interval(secs => %(settled)s) as settled,
        -- The same where a standby has taken over without being started anew: the last that it got to know of the server
        -- before. Of one that has never been a standby, or was started since, this is null.
        case
            when pg_catalog.pg_last_xact_replay_timestamp() > pg_catalog.pg_postmaster_start_time()
            then pg_catalog.pg_last_xact_replay_timestamp()
        end as replaced_at
),
dead as materialized (
    select d.execution_id, d.fence from unnest(%(dead_executions)s::bigint[], %(dead_fences)s::bigint[]) d(execution_id, fence)
),
looks as (
    select l.execution_id, l.fence, 'lapsed' as basis, l.expires_at as since
    from aiflow.lease l, clock
    where %(identity)s::bytea is null and clock.settled and l.expires_at <= clock.now
        and not exists (select from dead d where d.execution_id = l.execution_id and d.fence = l.fence)
    union all
    select l.execution_id, l.fence, 'dead', clock.now
    from aiflow.lease l join dead d on d.execution_id = l.execution_id and d.fence = l.fence, clock
    where %(identity)s::bytea is null
    union all
    select l.execution_id, l.fence, 'live', l.progress_at
    from aiflow.lease l, clock
    where %(identity)s::bytea is null and l.expires_at > clock.now
        and l.progress_at <= clock.now - make_interval(secs => greatest(%(stall_floor)s, l.step_timeout))
        and not exists (select from dead d where d.execution_id = l.execution_id and d.fence = l.fence)
    union all
    select e.execution_id, e.fence, 'lapsed', a.ended_at
    from clock, aiflow.execution e
    cross join lateral (
        select o.ended_at from aiflow.attempt o where o.execution_id = e.execution_id and o.fence = e.fence offset 0
    ) a
    where %(identity)s::bytea is null and e.state = 'running'
        and a.ended_at <= clock.now - make_interval(secs => %(lost_after)s)
        and not exists (select from aiflow.lease l where l.execution_id = e.execution_id)
    union all
    select e.execution_id, e.fence, 'paused', a.ended_at
    from clock, aiflow.execution e
    cross join lateral (
        select o.ended_at from aiflow.attempt o where o.execution_id = e.execution_id and o.fence = e.fence offset 0
    ) a
    where %(identity)s::bytea is null and e.state = 'paused'
        and a.ended_at <= clock.now - make_interval(secs => %(lost_after)s)
    union all
    select e.execution_id, e.fence, 'unheard', e.finished_at
    from clock, (                              -- `offset 0`: by execution_open, for all that was ever done has finished;
                                               -- and what has a slash in its task id takes effects back for a person
        select o.execution_id, o.fence, o.finished_at from aiflow.execution o
        where o.state = 'succeeded' and o.heard_at is null
            and position('/' in o.task_id) = 0
        offset 0
    ) e
    where %(identity)s::bytea is null and e.finished_at <= clock.now - make_interval(secs => %(unheard_after)s)
),
chosen as materialized (
    select c.execution_id, c.fence, c.basis, c.since,
        case when i.basis = c.basis::aiflow.stall_basis then i.basis_at end as found_at,
        r.state = 'marked' as marked, r.version
    from looks c
    cross join clock
    left join lateral (                        -- `offset 0`, here and below: from one row to its own, whatever the
        select o.look_again_at, o.basis, o.basis_at from aiflow.incident o        -- statistics say
        where o.execution_id = c.execution_id and o.fence = c.fence
        offset 0
    ) i on true
    left join lateral (
        select o.state, o.version, o.at from aiflow.requeue o
        where o.execution_id = c.execution_id and o.fence = c.fence
        offset 0
    ) r on true
    where (i.basis is null or i.look_again_at <= clock.now or i.basis <> c.basis::aiflow.stall_basis)
        and (r.state is null or r.state <> 'marked' or r.at <= clock.now - make_interval(secs => %(mark_seconds)s))
    order by c.since, c.execution_id
    limit %(limit)s
),
asked as (
    select c.execution_id, c.basis, c.since, c.found_at, c.marked, c.version from chosen c
    union all
    select
        e.execution_id,
        case e.state
            when 'paused' then 'paused' when 'succeeded' then 'unheard'
            else case when l.expires_at > statement_timestamp() then 'live' else 'lapsed' end
        end,
        null, i.basis_at, r.state = 'marked', r.version
    from aiflow.execution e
    left join aiflow.lease l on l.execution_id = e.execution_id and l.fence = e.fence
    left join aiflow.incident i on i.execution_id = e.execution_id and i.fence = e.fence
    left join aiflow.requeue r on r.execution_id = e.execution_id and r.fence = e.fence
    where e.identity = %(identity)s
)
select
    e.execution_id, e.dag_id, e.run_id, e.task_id, e.map_index, e.fence, e.state::text,
    a.ti_id, a.try_number, a.max_tries, a.retries, a.clear_number, a.run_after, a.owner,
    extract(epoch from clock.now - coalesce(e.finished_at, a.ended_at, a.started_at))::double precision,
    extract(epoch from l.expires_at - clock.now)::double precision,
    extract(epoch from clock.now - l.progress_at)::double precision,
    l.step_name, l.step_timeout,
    extract(epoch from clock.now - s.found_at)::double precision,
    coalesce(s.marked, false), coalesce(s.version, 0), a.recovery::text, a.max_recoveries,
    past.attempts, step.fence, step.data, open.count, open.gone_in, s.basis,
    case when e.state = 'paused' then e.pause_reason end,
    -- It lived when the server before fell silent, as far as one of any length may have: it could not be renewed.
    coalesce(
        l.expires_at > clock.replaced_at
            and l.expires_at <= clock.replaced_at + make_interval(secs => %(longest_lease)s),
        false
    )
from asked s
cross join clock
cross join lateral (
    select x.* from aiflow.execution x where x.execution_id = s.execution_id offset 0
) e
cross join lateral (
    select x.* from aiflow.attempt x where x.execution_id = e.execution_id and x.fence = e.fence offset 0
) a
left join aiflow.lease l on l.execution_id = e.execution_id and l.fence = e.fence
cross join lateral (
    select
        -- One object an attempt, the latest first: {fence, ending, word: a person's clear or a new run began it,
        -- progress: it recorded something; asked of the dead alone, clears of ours after it, seconds ago}.
        jsonb_agg(jsonb_build_object(
            'fence', p.fence, 'ending', p.ending, 'word', p.word, 'died_in', p.died_in, 'clears', p.clears, 'ago', p.ago,
            'progress', (p.ending is null or p.ending in ('lapsed', 'superseded')) and exists (
                select from aiflow.event v
                where v.execution_id = e.execution_id and v.fence = p.fence and v.kind in ('step', 'effect', 'job')
            )
        ) order by p.fence desc) as attempts
    from (
        select
            o.fence, o.ending, o.died_in,
            o.sign in ('cleared', 'made_again') and before.execution_id is null as word,
            case r.state
                when 'void' then 0 when 'consumed' then greatest(r.clears, 1) else r.clears
            end as clears,
            extract(epoch from clock.now - r.at)::double precision as ago
        from aiflow.attempt o
        left join aiflow.requeue r on r.execution_id = o.execution_id and r.fence = o.fence
        left join aiflow.requeue before
            on before.execution_id = o.execution_id and before.fence = o.fence - 1 and before.state = 'consumed'
        where o.execution_id = e.execution_id
        order by o.fence desc
        limit %(attempts)s
    ) p
) past
left join lateral (                            -- the step that was recorded last, as far as the latest events tell
    select v.fence, v.data
    from (
        select o.fence, o.seq, o.kind, o.data from aiflow.event o
        where o.execution_id = e.execution_id
        order by o.fence desc, o.seq desc
        limit %(events)s
    ) v
    where v.kind = 'step'
    order by v.fence desc, v.seq desc
    limit 1
) step on true
cross join lateral (
    select
        count(*)::integer as count,
        coalesce(max(extract(epoch from
            greatest(coalesce(h.expires_at, following.prior_lease_until, b.ended_at), i.intended_at)
            + make_interval(secs => i.timeout_s) - clock.now)), 0)::double precision as gone_in
    from (
        select o.effect_id, o.intent_no from aiflow.effect o
        where o.execution_id = e.execution_id and o.state = 'intended'
        offset 0
    ) o
    join aiflow.intent i on i.effect_id = o.effect_id and i.no = o.intent_no
    join aiflow.attempt b on b.execution_id = i.execution_id and b.fence = i.fence
    left join aiflow.lease h on h.execution_id = i.execution_id and h.fence = i.fence
    left join aiflow.attempt following on following.execution_id = i.execution_id and following.fence = i.fence + 1
) open
order by s.since, e.execution_id
