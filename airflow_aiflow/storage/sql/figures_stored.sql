-- What is stored, by state. A small table is counted; of a large one the planner's statistics say how many rows there
-- are and how often each state occurs in them, as of the last ANALYZE.
with size as materialized (
    select c.relname, c.reltuples, pg_catalog.pg_relation_size(c.oid) <= %(small)s as small
    from pg_catalog.pg_class c
    where c.oid in ('aiflow.execution'::regclass, 'aiflow.effect'::regclass)
)
select 'executions', v.state::text, coalesce(c.number, 0)::double precision, false
from size z
cross join unnest(enum_range(null::aiflow.execution_state)) v (state)
left join (
    select state, count(*) as number from aiflow.execution
    where (select small from size where relname = 'execution')
    group by state
) c on c.state = v.state
where z.relname = 'execution' and z.small
union all
select 'effects', v.state::text, coalesce(c.number, 0)::double precision, false
from size z
cross join unnest(enum_range(null::aiflow.effect_state)) v (state)
left join (
    select state, count(*) as number from aiflow.effect
    where (select small from size where relname = 'effect')
    group by state
) c on c.state = v.state
where z.relname = 'effect' and z.small
union all
select
    z.relname || 's', v.state, round(z.reltuples * v.share)::double precision, true
from size z
join pg_catalog.pg_stats p on p.schemaname = 'aiflow' and p.tablename = z.relname and p.attname = 'state'
cross join lateral unnest(p.most_common_vals::text::text[], p.most_common_freqs) v (state, share)
where not z.small and z.reltuples >= 0
