-- Carry the running totals on: one statement, and by the mark's row one scraper at a time. Who comes second finds that
-- the mark has moved, and adds nothing.
with mark as materialized (
    update aiflow.tally_mark set upto = %(till)s where upto = %(since)s and %(since)s < %(till)s returning upto
),
step as materialized (
    select
        s.kind, coalesce(s.model, 'unknown') as model, count(*) as steps, count(s.tokens_in) as calls,
        sum(s.tokens_in) as tokens_in, sum(s.tokens_out) as tokens_out, sum(s.cost) as cost,
        count(*) filter (where s.tokens_in is not null and s.cost is null) as unpriced
    from mark, aiflow.step s
    where s.recorded_at >= %(since)s and s.recorded_at < %(till)s
    group by 1, 2
),
wasted as materialized (
    select
        coalesce(w.model, 'unknown') as model, count(*) as calls, sum(w.tokens_in) as tokens_in,
        sum(w.tokens_out) as tokens_out, sum(w.cost) as cost, count(*) filter (where w.cost is null) as unpriced
    from mark, aiflow.wasted_call w
    where w.at >= %(since)s and w.at < %(till)s
    group by 1
),
begun as materialized (
    select a.execution_id, a.fence, a.sign, a.started_at
    from mark, aiflow.attempt a
    where a.started_at >= %(since)s and a.started_at < %(till)s
),
ready as materialized (                        -- what was recorded before an attempt began that goes on
    select b.sign, count(*) as steps, count(s.tokens_in) as calls, sum(s.cost) as cost
    from begun b
    join aiflow.execution x on x.execution_id = b.execution_id
    join aiflow.step s
        on s.execution_id = b.execution_id and s.generation = x.generation and s.recorded_at < b.started_at
    where b.fence > 1
    group by 1
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
        select 'attempts_ended', a.ending::text, count(*)
        from mark, aiflow.attempt a
        where
            a.ended_at >= %(since)s and a.ended_at < %(till)s and a.ending not in ('lapsed', 'superseded')
        group by a.ending
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
        from mark, aiflow.requeue r
        left join aiflow.incident i on i.execution_id = r.execution_id and i.fence = r.fence
        where r.at >= %(since)s and r.at < %(till)s and r.state in ('cleared', 'consumed')
        group by 2
    )
)
insert into aiflow.tally (name, label, value)
select name, label, sum(value) from found group by name, label having sum(value) > 0
on conflict (name, label) do update set value = tally.value + excluded.value
returning name
