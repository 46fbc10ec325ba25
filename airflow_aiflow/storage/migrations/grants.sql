-- The role that tasks use reads and writes rows and nothing else; where it does not exist, its owner grants by himself.
do $$
begin
    if current_user = 'aiflow' or not exists (select from pg_catalog.pg_roles where rolname = 'aiflow') then
        return;
    end if;
    grant usage on schema aiflow to aiflow;
    grant select, insert, update, delete on all tables in schema aiflow to aiflow;
    grant usage, select on all sequences in schema aiflow to aiflow;
    grant execute on all functions in schema aiflow to aiflow;
    revoke insert, update, delete on aiflow.schema_version from aiflow;
    alter default privileges in schema aiflow grant select, insert, update, delete on tables to aiflow;
    alter default privileges in schema aiflow grant usage, select on sequences to aiflow;
    alter default privileges in schema aiflow grant execute on functions to aiflow;
end
$$;
