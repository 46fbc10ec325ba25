-- One upgrade at a time, from the first look on. The number is ours alone: the first six bytes of SHA-256("airflow-aiflow").
select pg_catalog.pg_advisory_xact_lock(156267594953505);

-- Looked for first: CREATE SCHEMA IF NOT EXISTS asks for the right to create where there is nothing to create.
do $$
begin
    if not exists (select from pg_catalog.pg_namespace where nspname = 'aiflow') then
        create schema aiflow;
    end if;
end
$$;
