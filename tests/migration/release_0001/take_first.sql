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
        upstream_digest, system_identifier, timeline
    )
    select
        up.execution_id, up.fence, 1, %(ti_id)s, %(try_number)s, %(max_tries)s, %(retries)s, %(clear_number)s,
        %(run_after)s, %(sign)s, %(owner)s, %(upstream_digest)s, s.system_identifier, s.timeline
    from up, aiflow.server_identity() s
)
select execution_id, fence, generation, 1, null::timestamptz from up
