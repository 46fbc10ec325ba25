-- What may this role do besides its work, and under which settings? Names no table of ours: there may be none.
select
    current_user::text as role,
    (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user) as superuser,
    exists (
        select from pg_catalog.pg_namespace n
        where n.nspname = 'aiflow' and (
            pg_catalog.pg_has_role(n.nspowner, 'USAGE') or pg_catalog.has_schema_privilege(n.oid, 'CREATE')
        )
    ) or exists (
        select from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'aiflow' and pg_catalog.pg_has_role(c.relowner, 'USAGE')
    ) as owner,
    current_setting('default_transaction_isolation') as isolation,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    current_setting('server_encoding') as encoding,
    current_setting('server_version_num')::integer as version,
    pg_catalog.pg_is_in_recovery() as replica,
    exists (select from pg_catalog.pg_namespace n where n.nspname = 'aiflow') as there
