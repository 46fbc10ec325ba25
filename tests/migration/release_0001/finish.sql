-- The first end that an attempt writes stands. One that let its lease go may still say how it ended.
with prior as materialized (
    select execution_id, fence, state from aiflow.execution
    where execution_id = %(execution_id)s and fence = %(fence)s
    for update
),
up as (
    update aiflow.execution e set
        state = %(state)s::text::aiflow.execution_state,
        finished_at = case when %(state)s::text <> 'paused' then clock_timestamp() end,
        result = %(result)s, result_sha256 = %(result_sha256)s, seal = %(seal)s
    from prior p
    where e.execution_id = p.execution_id and p.state = 'running'
    returning e.execution_id, e.fence
),
gone as (
    delete from aiflow.lease l using up
    where l.execution_id = up.execution_id and l.fence = up.fence
    returning l.execution_id
),
ended as (                                     -- after the lease, in the order of let_go
    update aiflow.attempt a set ended_at = coalesce(a.ended_at, clock_timestamp()), ending = %(state)s::text::aiflow.attempt_ending
    from up left join gone on gone.execution_id = up.execution_id
    where a.execution_id = up.execution_id and a.fence = up.fence and (a.ending is null or a.ending = 'let_go')
)
select exists (select from prior)
