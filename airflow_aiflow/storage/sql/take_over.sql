-- One statement: raise the fence where it is the one on which the sign was computed (so that no older attempt gets in
-- between), set the lease, end the former attempt, write the new one, consume or void a requeue mark, see whether other
-- map indexes have recorded steps before this clear, and whether an attempt was at work when the server became another
-- one. The execution's row is locked before the lease's, as everywhere.
with prior as materialized (
    select execution_id, fence, generation from aiflow.execution
    where identity = %(identity)s and fence = %(seen)s
    for update
),
held as materialized (                         -- locked, so that a beat on its way counts
    select l.execution_id, l.expires_at, l.step_name from aiflow.lease l, prior p
    where l.execution_id = p.execution_id and l.fence = p.fence
    for update of l
),
was as materialized (
    select
        p.execution_id, p.fence, p.generation, a.number, a.max_tries,
        coalesce(h.expires_at, a.ended_at) as lease_until, h.step_name,
        a.ti_id = %(ti_id)s and a.try_number = %(try_number)s as same
    from prior p
    join aiflow.attempt a on a.execution_id = p.execution_id and a.fence = p.fence
    left join held h on h.execution_id = p.execution_id
),
up as (
    update aiflow.execution e set
        fence = w.fence + 1,
        generation = w.generation + %(new_generations)s,
        state = 'running', finished_at = null, result = null, result_sha256 = null, seal = null, pause_reason = null,
        heard_at = case when w.same then e.heard_at end
    from was w
    where e.execution_id = w.execution_id
    returning
        e.execution_id, e.fence, e.generation,
        w.number + case when w.same then 0 else 1 end as number, w.fence as former, w.lease_until,
        w.step_name
),
le as (
    insert into aiflow.lease (execution_id, fence, expires_at, progress_at)
    select execution_id, fence, clock_timestamp() + make_interval(secs => %(ttl)s), clock_timestamp() from up
    on conflict (execution_id) do update set
        fence = excluded.fence, expires_at = excluded.expires_at, progress_at = excluded.progress_at,
        step_name = null, step_timeout = null, wanted_by = null
),
ended as (
    update aiflow.attempt a set
        ended_at = least(coalesce(up.lease_until, clock_timestamp()), clock_timestamp()),
        ending = case
            when up.lease_until > clock_timestamp() and not %(dead)s then 'superseded' else 'lapsed'
        end::aiflow.attempt_ending,
        died_in = up.step_name
    from up
    where a.execution_id = up.execution_id and a.fence = up.former and a.ended_at is null
),
atm as (
    insert into aiflow.attempt (
        execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number, run_after, sign, owner,
        upstream_digest, on_clear, recovery, max_recoveries, prior_lease_until, system_identifier, timeline
    )
    select
        up.execution_id, up.fence, up.number, %(ti_id)s, %(try_number)s, %(max_tries)s, %(retries)s, %(clear_number)s,
        %(run_after)s, %(sign)s, %(owner)s, %(upstream_digest)s, %(on_clear)s,
        %(recovery)s, %(max_recoveries)s, up.lease_until, s.system_identifier, s.timeline
    from up, aiflow.server_identity() s
),
mark as (
    update aiflow.requeue r set
        state = case
            when r.fence = up.former and not w.same and %(clear_number)s > r.clear_number
                and %(clear_number)s <= coalesce(r.clear_until, r.clear_number + 1)
            then 'consumed' else 'void'
        end::aiflow.requeue_state
    from up, was w
    where r.execution_id = up.execution_id and r.state in ('marked', 'cleared')
    returning r.state
)
select
    up.execution_id, up.fence, up.generation, up.number, up.lease_until,
    (
        %(clear_number)s > 0 and exists (
            select from aiflow.execution x
            join aiflow.attempt a on a.execution_id = x.execution_id and a.clear_number < %(clear_number)s
            left join aiflow.lease l
                on l.execution_id = a.execution_id and l.fence = a.fence and l.expires_at > clock_timestamp()
            where
                hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
                and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
                and hashtextextended(x.task_id, 0) = hashtextextended(%(task_id)s, 0)
                and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s and x.task_id = %(task_id)s
                and x.execution_id <> up.execution_id and l.execution_id is null
                and exists (select from aiflow.step s where s.execution_id = a.execution_id and s.fence = a.fence)
        )
    ) as siblings,
    exists (
        select from aiflow.attempt a, aiflow.server_identity() s
        where a.execution_id = up.execution_id and a.fence <= up.former
            and (a.system_identifier <> s.system_identifier or a.timeline <> s.timeline)
            and (a.ended_at is null or a.ending in ('lapsed', 'superseded'))
    ) as failed_over,
    ours.requeued,
    -- What answers are valid for: the tries as a person left them. Our own clears change them, and ask nothing anew.
    case
        when not ours.requeued and (
            ours.max_tries <> %(max_tries)s
            or not exists (select from aiflow.requeue r where r.execution_id = up.execution_id and r.state = 'consumed')
        ) then %(max_tries)s
        else coalesce(
            (
                select a.max_tries from aiflow.attempt a
                join aiflow.attempt before on before.execution_id = a.execution_id and before.fence = a.fence - 1
                where a.execution_id = up.execution_id and a.fence <= up.former and a.max_tries <> before.max_tries
                    and not exists (
                        select from aiflow.requeue r
                        where r.execution_id = a.execution_id and r.fence = before.fence and r.state = 'consumed'
                    )
                order by a.fence desc
                limit 1
            ),
            (select a.max_tries from aiflow.attempt a where a.execution_id = up.execution_id order by a.fence limit 1)
        )
    end as round,
    (
        select case when s.cancel_asked_at is not null then 'cancel' when s.hold_asked_at is not null then 'hold' end
        from aiflow.submission s
        where
            hashtextextended(s.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
            and hashtextextended(s.run_id, 0) = hashtextextended(%(run_id)s, 0)
            and s.dag_id = %(dag_id)s and s.run_id = %(run_id)s and (s.finished_at is null or s.state = 'cancelled')
    ) as asked
from up
cross join lateral (
    select exists (select from mark m where m.state = 'consumed') as requeued, w.max_tries from was w
) ours
