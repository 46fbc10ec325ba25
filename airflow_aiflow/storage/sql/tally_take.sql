-- Carry the running totals on: one statement, and by the mark's row one scraper at a time. Who comes second finds that
-- the mark has moved, and adds nothing.
with mark as materialized (
    update aiflow.tally_mark set upto = %(till)s where upto = %(since)s and %(since)s < %(till)s returning upto
),
stepped as materialized (
    select
        s.execution_id, s.kind, coalesce(s.model, 'unknown') as model, count(*) as steps, count(s.tokens_in) as calls,
        sum(s.tokens_in) as tokens_in, sum(s.tokens_out) as tokens_out, sum(s.cost) as cost,
        count(*) filter (where s.tokens_in is not null and s.cost is null) as unpriced,
        count(*) filter (where s.kind = 'llm' and s.tokens_in is null) as reused
    from mark, aiflow.step s
    where s.recorded_at >= %(since)s and s.recorded_at < %(till)s
    group by 1, 2, 3
),
step as materialized (
    select
        kind, model, sum(steps) as steps, sum(calls) as calls, sum(tokens_in) as tokens_in, sum(tokens_out) as tokens_out,
        sum(cost) as cost, sum(unpriced) as unpriced
    from stepped
    group by 1, 2
),
wasteful as materialized (
    select
        w.execution_id, coalesce(w.model, 'unknown') as model, count(*) as calls, sum(w.tokens_in) as tokens_in,
        sum(w.tokens_out) as tokens_out, sum(w.cost) as cost, count(*) filter (where w.cost is null) as unpriced
    from mark, aiflow.wasted_call w
    where w.at >= %(since)s and w.at < %(till)s
    group by 1, 2
),
wasted as materialized (
    select
        model, sum(calls) as calls, sum(tokens_in) as tokens_in, sum(tokens_out) as tokens_out, sum(cost) as cost,
        sum(unpriced) as unpriced
    from wasteful
    group by 1
),
begun as materialized (
    select a.execution_id, a.fence, a.sign, a.started_at
    from mark, aiflow.attempt a
    where a.started_at >= %(since)s and a.started_at < %(till)s
),
going_on as materialized (                     -- what was recorded before an attempt began that goes on
    select b.execution_id, b.sign, count(*) as steps, count(s.tokens_in) as calls, sum(s.cost) as cost
    from begun b
    join aiflow.execution x on x.execution_id = b.execution_id
    join aiflow.step s
        on s.execution_id = b.execution_id and s.generation = x.generation and s.recorded_at < b.started_at
    where b.fence > 1
    group by 1, 2
),
ready as materialized (
    select sign, sum(steps) as steps, sum(calls) as calls, sum(cost) as cost from going_on group by 1
),
ended as materialized (
    select a.execution_id, a.ending, count(*) as number
    from mark, aiflow.attempt a
    where a.ended_at >= %(since)s and a.ended_at < %(till)s and a.ending not in ('lapsed', 'superseded')
    group by 1, 2
),
recovered as materialized (
    select r.execution_id, r.fence
    from mark, aiflow.requeue r
    where r.at >= %(since)s and r.at < %(till)s and r.state in ('cleared', 'consumed')
),
stalled as materialized (                      -- what was but left alone for a while was no stall
    update aiflow.incident i set tallied = true
    from mark
    where not i.tallied and (i.report or i.decision in ('requeue', 'quarantine'))
    returning i.kind, i.detected_after
),
found (name, label, value) as (
    select 'steps', kind, sum(steps) from step group by kind
    union all select 'model_calls', model, sum(calls) from step group by model
    union all select 'model_calls', model, calls from wasted
    union all select 'model_calls_wasted', model, calls from wasted
    union all select 'model_tokens_in', model, sum(tokens_in) from step group by model
    union all select 'model_tokens_in', model, tokens_in from wasted
    union all select 'model_tokens_out', model, sum(tokens_out) from step group by model
    union all select 'model_tokens_out', model, tokens_out from wasted
    union all select 'model_cost', model, sum(cost) from step group by model
    union all select 'model_cost', model, cost from wasted
    union all select 'model_calls_unpriced', model, sum(unpriced) from step group by model
    union all select 'model_calls_unpriced', model, unpriced from wasted
    union all select 'attempts_begun', sign::text, count(*) from begun group by sign
    union all (                                -- by their own word, at the time of it
        select 'attempts_ended', ending::text, sum(number) from ended group by ending
    )
    union all (                                -- by the word of the next one, whose time is another
        select 'attempts_ended', p.ending::text, count(*)
        from begun b
        join aiflow.attempt p on p.execution_id = b.execution_id and p.fence = b.fence - 1
        where p.ending in ('lapsed', 'superseded')
        group by p.ending
    )
    union all select 'ready_steps', sign::text, steps from ready
    union all select 'ready_calls', sign::text, calls from ready
    union all select 'ready_cost', sign::text, cost from ready
    union all (
        select 'intents', '', count(*) from mark, aiflow.intent i
        where i.intended_at >= %(since)s and i.intended_at < %(till)s
    )
    union all select 'incidents', kind, count(*) from stalled group by kind
    union all select 'detected_after', kind, sum(detected_after)::numeric from stalled group by kind
    union all (
        select 'recoveries', coalesce(i.kind, 'unknown'), count(*)
        from recovered r
        left join aiflow.incident i on i.execution_id = r.execution_id and i.fence = r.fence
        group by 2
    )
),
of_execution as (
    select
        execution_id, calls as paid_calls, cost as paid_cost, unpriced, tokens_in, tokens_out, 0 as replayed_calls,
        0 as replayed_cost, reused as reused_calls, 0 as runs, 0 as executions, 0 as succeeded, 0 as failed,
        0 as recoveries
    from stepped
    union all select execution_id, calls, cost, unpriced, tokens_in, tokens_out, 0, 0, 0, 0, 0, 0, 0, 0 from wasteful
    union all select execution_id, 0, 0, 0, 0, 0, calls, cost, 0, 0, 0, 0, 0, 0 from going_on where sign <> 'same'
    union all select execution_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0 from begun where fence = 1
    union all (                                -- a run's first: nothing of it is older
        select b.execution_id, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0
        from begun b
        join aiflow.execution x on x.execution_id = b.execution_id
        where b.fence = 1 and not exists (
            select from aiflow.execution o
            where
                hashtextextended(o.dag_id, 0) = hashtextextended(x.dag_id, 0)
                and hashtextextended(o.run_id, 0) = hashtextextended(x.run_id, 0)
                and o.dag_id = x.dag_id and o.run_id = x.run_id and o.execution_id < x.execution_id
        )
    )
    union all (
        select
            execution_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, case ending when 'succeeded' then number end,
            case ending when 'failed' then number end, 0
        from ended
    )
    union all select execution_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 from recovered
),
by_day as (
    insert into aiflow.dag_day as d (
        day, dag_id, paid_calls, paid_cost, unpriced, tokens_in, tokens_out, replayed_calls, replayed_cost, reused_calls,
        runs, executions, succeeded, failed, recoveries
    )
    select
        (%(since)s at time zone 'UTC')::date, x.dag_id, coalesce(sum(o.paid_calls), 0), coalesce(sum(o.paid_cost), 0),
        coalesce(sum(o.unpriced), 0), coalesce(sum(o.tokens_in), 0), coalesce(sum(o.tokens_out), 0),
        coalesce(sum(o.replayed_calls), 0), coalesce(sum(o.replayed_cost), 0), coalesce(sum(o.reused_calls), 0),
        coalesce(sum(o.runs), 0), coalesce(sum(o.executions), 0), coalesce(sum(o.succeeded), 0),
        coalesce(sum(o.failed), 0), coalesce(sum(o.recoveries), 0)
    from of_execution o
    join aiflow.execution x on x.execution_id = o.execution_id
    group by x.dag_id
    on conflict (day, dag_id) do update set
        paid_calls = d.paid_calls + excluded.paid_calls, paid_cost = d.paid_cost + excluded.paid_cost,
        unpriced = d.unpriced + excluded.unpriced, tokens_in = d.tokens_in + excluded.tokens_in,
        tokens_out = d.tokens_out + excluded.tokens_out, replayed_calls = d.replayed_calls + excluded.replayed_calls,
        replayed_cost = d.replayed_cost + excluded.replayed_cost, reused_calls = d.reused_calls + excluded.reused_calls,
        runs = d.runs + excluded.runs, executions = d.executions + excluded.executions,
        succeeded = d.succeeded + excluded.succeeded, failed = d.failed + excluded.failed,
        recoveries = d.recoveries + excluded.recoveries
)
insert into aiflow.tally (name, label, value)
select name, label, sum(value) from found group by name, label having sum(value) > 0
on conflict (name, label) do update set value = tally.value + excluded.value
returning name
