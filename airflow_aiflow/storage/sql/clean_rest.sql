-- Delete what is left of executions whose steps and events are gone; the execution itself, with its attempts, where no
-- intent points to it: pages and lists find an effect's task and try through these two. An effect that it wrote when this
-- transaction looked may have been taken up by another since, which leaves its intent: so it stays as long as that.
-- Rows of the tables that grow with every run are found by their keys, whatever the statistics say.
with w as materialized (
    select u.execution_id from unnest(%(ids)s::bigint[]) u (execution_id)
),
gone as materialized (
    select w.execution_id from w
    where not w.execution_id = any (%(former)s::bigint[])
        and not exists (
            select from unnest(%(effects)s::bigint[], %(writers)s::bigint[]) s (effect_id, execution_id)
            cross join lateral (select from aiflow.effect e where e.effect_id = s.effect_id offset 0) e
            where s.execution_id = w.execution_id
        )
),
label as (
    delete from aiflow.label where ctid = any (array(
        select r.ctid from w
        cross join lateral (select t.ctid from aiflow.label t where t.execution_id = w.execution_id offset 0) r
    ))
    returning true
),
requeue as (
    delete from aiflow.requeue where ctid = any (array(
        select r.ctid from w
        cross join lateral (select t.ctid from aiflow.requeue t where t.execution_id = w.execution_id offset 0) r
    ))
    returning true
),
incident as (
    delete from aiflow.incident where ctid = any (array(
        select r.ctid from w
        cross join lateral (select t.ctid from aiflow.incident t where t.execution_id = w.execution_id offset 0) r
    ))
    returning true
),
model_wait as (
    delete from aiflow.model_wait where ctid = any (array(
        select r.ctid from w
        cross join lateral (select t.ctid from aiflow.model_wait t where t.execution_id = w.execution_id offset 0) r
    ))
    returning true
),
wish as (
    delete from aiflow.wish where ctid = any (array(
        select r.ctid from w
        cross join lateral (select t.ctid from aiflow.wish t where t.execution_id = w.execution_id offset 0) r
    ))
    returning true
),
question as (
    delete from aiflow.question t using w where t.execution_id = w.execution_id and t.answer is not null returning true
),
attempt as (
    delete from aiflow.attempt where ctid = any (array(
        select r.ctid from gone
        cross join lateral (select t.ctid from aiflow.attempt t where t.execution_id = gone.execution_id offset 0) r
    ))
    returning true
),
execution as (
    delete from aiflow.execution where ctid = any (array(
        select r.ctid from gone
        cross join lateral (select t.ctid from aiflow.execution t where t.execution_id = gone.execution_id offset 0) r
    ))
    returning true
)
select
    (select count(*) from label), (select count(*) from requeue), (select count(*) from incident),
    (select count(*) from model_wait), (select count(*) from wish), (select count(*) from question),
    (select count(*) from attempt), (select count(*) from execution)
