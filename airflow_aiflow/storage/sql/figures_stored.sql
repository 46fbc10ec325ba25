-- What is stored, by state. A small table is counted; of a large one the planner's statistics say how many rows there
-- are and how often each state occurs in them, as of the last ANALYZE.
with size as materialized (
    select c.oid, c.relname, c.reltuples, pg_catalog.pg_relation_size(c.oid) <= %(small)s as small
    from pg_catalog.pg_class c
    where c.oid in ('aiflow.execution'::regclass, 'aiflow.effect'::regclass)
)
select 'executions', state::text, count(*)::double precision, false
from aiflow.execution
where (select small from size where relname = 'execution')
group by state
union all
select 'effects', state::text, count(*)::double precision, false
from aiflow.effect
where (select small from size where relname = 'effect')
group by state
union all
select
    z.relname || 's', v.state, round(z.reltuples * v.share)::double precision, true
from size z
join pg_catalog.pg_stats p on p.schemaname = 'aiflow' and p.tablename = z.relname and p.attname = 'state'
cross join lateral unnest(p.most_common_vals::text::text[], p.most_common_freqs) v (state, share)
where not z.small and z.reltuples >= 0
