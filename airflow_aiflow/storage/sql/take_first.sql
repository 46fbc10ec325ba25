-- The first take-over of an execution: nothing where somebody else was first.
with up as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index)
    values (%(identity)s, %(dag_id)s, %(run_id)s, %(task_id)s, %(map_index)s)
    on conflict (identity) do nothing
    returning execution_id, fence, generation
),
le as (
    insert into aiflow.lease (execution_id, fence, expires_at, progress_at)
    select execution_id, fence, clock_timestamp() + make_interval(secs => %(ttl)s), clock_timestamp() from up
),
atm as (
    insert into aiflow.attempt (
        execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number, run_after, sign, owner,
        upstream_digest, on_clear, recovery, max_recoveries, system_identifier, timeline
    )
    select
        up.execution_id, up.fence, 1, %(ti_id)s, %(try_number)s, %(max_tries)s, %(retries)s, %(clear_number)s,
        %(run_after)s, %(sign)s, %(owner)s, %(upstream_digest)s, %(on_clear)s,
        %(recovery)s, %(max_recoveries)s, s.system_identifier, s.timeline
    from up, aiflow.server_identity() s
)
select
    up.execution_id, up.fence, up.generation, 1, null::timestamptz,
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
    false as failed_over,
    false as requeued,
    %(max_tries)s::integer as round,
    (
        select case when s.cancel_asked_at is not null then 'cancel' when s.hold_asked_at is not null then 'hold' end
        from aiflow.submission s
        where
            hashtextextended(s.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
            and hashtextextended(s.run_id, 0) = hashtextextended(%(run_id)s, 0)
            and s.dag_id = %(dag_id)s and s.run_id = %(run_id)s and (s.finished_at is null or s.state = 'cancelled')
    ) as asked
from up
