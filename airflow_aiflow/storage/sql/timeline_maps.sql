-- The maps of a generation, each as one row: items, prompts, and what runs inside of units that are not recorded
-- themselves.
with s as materialized (
    select
        s.kind, s.name, s.unit, s.ended_at, s.duration_ms, s.tokens_in, s.cost,
        s.kind = 'item' or (s.kind = 'llm' and count(*) over (partition by s.kind, s.name, s.unit) > %(fold)s) as folded
    from aiflow.step s
    where s.execution_id = %(execution_id)s and s.generation = %(generation)s
),
m as (
    select s.*, s.name as map from s where s.folded and s.unit = ''
    union all
    select s.*, split_part(s.unit, '/', 1) from s
    where s.unit <> '' and not exists (
        select from s o where o.unit = '' and not o.folded and o.name = split_part(s.unit, '/', 1)
    )
)
select
    m.map,
    (count(*) filter (where m.unit = '') + count(distinct split_part(m.unit, '/', 2)) filter (where m.unit <> ''))::integer,
    count(*)::integer, count(m.tokens_in)::integer, coalesce(sum(m.cost), 0),
    min(m.ended_at - make_interval(secs => m.duration_ms / 1000)), max(m.ended_at)
from m
group by m.map
union all
select i.name, 0, 0, 0, 0, min(i.at), max(i.at)
from aiflow.failed_item i
where i.execution_id = %(execution_id)s and i.generation = %(generation)s
    and not exists (select from m where m.map = i.name)
group by i.name
order by 6, 1
