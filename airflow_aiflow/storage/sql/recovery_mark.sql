-- Mark executions of one run, by compare-and-set on (fence, state, version of the mark). The executions are locked in one
-- order and before their leases, as everywhere, so that no attempt takes over in between and no two marks deadlock. All
-- marks of one statement bear one `at`: they stand for one clear.
with wish as materialized (
    select w.execution_id, w.fence, w.state, w.version, w.marked, w.dead, w.idle
    from unnest(
        %(executions)s::bigint[], %(fences)s::bigint[], %(states)s::text[], %(versions)s::integer[], %(marked)s::boolean[],
        %(dead)s::boolean[], %(idle)s::double precision[]
    ) w(execution_id, fence, state, version, marked, dead, idle)
),
locked as materialized (
    select e.execution_id, e.fence, e.state, e.heard_at from aiflow.execution e
    where e.execution_id = any (%(executions)s)
    order by e.execution_id
    for no key update
),
held as materialized (                         -- locked, so that a beat on its way counts
    select l.execution_id, l.fence, l.expires_at, l.progress_at from aiflow.lease l
    where l.execution_id in (select k.execution_id from locked k)
    for share
),
free as (
    select w.execution_id, w.fence, w.version, w.marked, a.ti_id
    from wish w
    join locked k on k.execution_id = w.execution_id and k.fence = w.fence and k.state::text = w.state and k.heard_at is null
    join aiflow.attempt a on a.execution_id = w.execution_id and a.fence = w.fence
    left join held h on h.execution_id = w.execution_id and h.fence = w.fence
    where h.execution_id is null or h.expires_at <= clock_timestamp() or w.dead
        -- Hung: it was without progress for so long when it was looked at, and is still.
        or h.progress_at <= clock_timestamp() - make_interval(secs => w.idle)
),
known as (                                     -- what the run's clear number is at least, and at most by our doing
    select
        greatest(max(a.clear_number), max(r.clear_number + 1) filter (where r.state = 'cleared')) as low,
        greatest(max(a.clear_number), max(r.clear_until)) as high
    from aiflow.execution x
    cross join lateral (
        select o.clear_number from aiflow.attempt o where o.execution_id = x.execution_id and o.fence = x.fence offset 0
    ) a
    left join aiflow.requeue r
        on r.execution_id = x.execution_id and r.fence = x.fence and r.state in ('marked', 'cleared')
    where
        hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
        and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
        and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
)
insert into aiflow.requeue as r (execution_id, fence, ti_id, clear_number, clear_until, may_clear, version, state, at)
select f.execution_id, f.fence, f.ti_id, known.low, known.high + %(clears)s, %(clears)s, f.version + 1, 'marked', statement_timestamp()
from free f, known
order by f.execution_id
on conflict (execution_id, fence) do update set
    state = 'marked', at = excluded.at, version = excluded.version, may_clear = excluded.may_clear,
    clear_number = least(r.clear_number, excluded.clear_number),
    clear_until = greatest(r.clear_until, excluded.clear_until)
where r.version = excluded.version - 1
    and (r.state in ('void', 'cleared') or r.at <= clock_timestamp() - make_interval(secs => %(mark_seconds)s))
    and r.state <> 'consumed'
returning r.execution_id, r.version
