-- Which rights does the tasks' work need that this role has not? A sequence behind an identity column needs none.
select 'the schema aiflow' as of_what, 'USAGE' as what
from pg_catalog.pg_namespace n
where n.nspname = 'aiflow' and not pg_catalog.has_schema_privilege(n.oid, 'USAGE')
union all
select c.relname::text, wanted.right_name
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join lateral unnest(case
    when c.relkind = 'v' or c.relname = 'schema_version' then array['SELECT']
    else array['SELECT', 'INSERT', 'UPDATE', 'DELETE']
end) as wanted (right_name)
where n.nspname = 'aiflow' and c.relkind in ('r', 'p', 'v')
    and not pg_catalog.has_table_privilege(c.oid, wanted.right_name)
union all
select c.relname::text, 'USAGE'
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'aiflow'   -- conditions are met in any order but inside a CASE, and that function takes sequences only
    and case when c.relkind = 'S' then not pg_catalog.has_sequence_privilege(c.oid, 'USAGE') end
    and not exists (select from pg_catalog.pg_depend d where d.objid = c.oid and d.deptype = 'i')
union all
select p.proname::text, 'EXECUTE'
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname = 'aiflow' and not pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
order by of_what, what
