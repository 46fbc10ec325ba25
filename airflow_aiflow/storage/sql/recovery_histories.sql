-- How long tasks took before, and the steps in hand where one is named: from the latest executions of each task, and
-- from so many steps of each of those. A step's key is a hash, so that the first of them are drawn at random.
select w.place, task.p50, steps.p95
from unnest(%(dag_ids)s::text[], %(task_ids)s::text[], %(steps)s::text[]) with ordinality w(dag_id, task_id, step, place)
cross join lateral (
    -- One after the other from the index's end: a limit would not keep a planner, who knows but what tasks have on the
    -- average, from reading all executions of one that ran a million times.
    with recursive latest as (
        select (
            select o.execution_id from aiflow.execution o
            where
                hashtextextended(o.dag_id, 0) = hashtextextended(w.dag_id, 0)
                and hashtextextended(o.task_id, 0) = hashtextextended(w.task_id, 0)
            order by o.execution_id desc
            limit 1
        ) as execution_id, 1 as n
        union all
        select (
            select o.execution_id from aiflow.execution o
            where
                hashtextextended(o.dag_id, 0) = hashtextextended(w.dag_id, 0)
                and hashtextextended(o.task_id, 0) = hashtextextended(w.task_id, 0)
                and o.execution_id < l.execution_id
            order by o.execution_id desc
            limit 1
        ), l.n + 1
        from latest l
        where l.execution_id is not null and l.n < %(executions)s
    )
    select array_agg(l.execution_id order by l.n) as ids
    from latest l
    cross join lateral (                       -- the hashes may lie
        select from aiflow.execution x
        where x.execution_id = l.execution_id and x.dag_id = w.dag_id and x.task_id = w.task_id
        offset 0
    ) same
) recent
cross join lateral (
    select case when count(*) >= %(least)s then
        percentile_disc(0.5) within group (order by extract(epoch from a.ended_at - a.started_at))::double precision
    end as p50
    from unnest(recent.ids) r(execution_id)
    cross join lateral (
        select o.started_at, o.ended_at from aiflow.attempt o
        where o.execution_id = r.execution_id and o.fence = 1 and o.ending = 'succeeded'
        offset 0
    ) a
) task
cross join lateral (
    select case when count(*) >= %(least)s then
        percentile_disc(0.95) within group (order by s.duration_ms) / 1000
    end as p95
    from unnest(case when w.step is not null then recent.ids[:%(sampled)s] end) r(execution_id)
    cross join lateral (
        select o.name, o.duration_ms from aiflow.step o
        where o.execution_id = r.execution_id
        order by o.execution_id, o.generation, o.step_key
        limit %(steps_each)s
    ) s
    where s.name = w.step
) steps
order by w.place
