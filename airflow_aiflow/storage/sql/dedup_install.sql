-- The dedup table of transactional effects, in the database that they change. Running it again changes nothing. What is
-- made here belongs to who runs it; a role that is to have effects needs
--   GRANT USAGE ON SCHEMA aiflow_dedup, SELECT ON aiflow_dedup.store, SELECT, INSERT, UPDATE ON aiflow_dedup.effect, SELECT ON
--   aiflow_dedup.released.
select pg_catalog.pg_advisory_xact_lock(4183004711);

create schema if not exists aiflow_dedup;

create table if not exists aiflow_dedup.store (      -- one row: which database this is
    only_row boolean primary key default true check (only_row),
    store_id uuid not null default pg_catalog.gen_random_uuid(),
    version integer not null default 1,
    made_at timestamptz not null default pg_catalog.clock_timestamp()
);

insert into aiflow_dedup.store default values on conflict do nothing;

create table if not exists aiflow_dedup.never (      -- empty for ever
    id smallint primary key check (false)
);

create table if not exists aiflow_dedup.effect (     -- a row of its own for ever, written by the effect's own transaction
    identity bytea primary key,                      -- of the three columns below
    namespace text not null,
    name text not null,
    key text not null,
    act uuid not null,                               -- which try wrote it
    -- Set until the last statement before the commit. Whoever else commits meanwhile is refused with all he did: a row
    -- that is open points to one that there never is.
    open smallint constraint only_the_flow_commits references aiflow_dedup.never deferrable initially deferred,
    request bytea not null,
    request_fp bytea not null,
    result bytea,
    result_sha256 bytea,
    seal bytea,
    dag_id text not null,
    run_id text not null,
    task_id text not null,
    map_index integer not null,
    generation integer not null,
    done_at timestamptz not null default pg_catalog.clock_timestamp()
) with (fillfactor = 80);

create table if not exists aiflow_dedup.released (   -- a person's word that what a try did may be done once more
    act uuid primary key,
    identity bytea not null,
    namespace text not null,
    name text not null,
    key text not null,
    request bytea not null,
    request_fp bytea not null,
    dag_id text not null,
    run_id text not null,
    task_id text not null,
    map_index integer not null,
    generation integer not null,
    done_at timestamptz not null,
    said_by text not null check (said_by <> ''),
    said_at timestamptz not null default pg_catalog.clock_timestamp(),
    note text not null
);
create index if not exists released_identity on aiflow_dedup.released (identity);
