-- The ledger's core. Every rule of a state is checked here, and is a condition in each statement of ../../sql.
--
-- PostgreSQL reads and compiles every CHECK of a table anew for each statement: a long one costs a tenth of a commit. So
-- states are enumerations (checked on the way in), rules of one column are domains (read once a session), and the hot
-- tables have but short CHECKs, for what only several columns together can say.
--
-- Not covered: no table is partitioned by time. A partitioned table's unique keys must hold the time, and an event or
-- attempt that is written again after a lost acknowledgement would then be there twice.

create domain aiflow.sha256 as bytea check (length(value) = 32);
create domain aiflow.ordinal as integer check (value >= 1);
create domain aiflow.business_key as text check (length(value) between 1 and 512);

create type aiflow.execution_state as enum ('running', 'paused', 'succeeded', 'failed', 'cancelled');
create type aiflow.attempt_sign as enum ('first', 'same', 'retry', 'ambiguous', 'cleared', 'made_again');
create type aiflow.attempt_ending as enum ('succeeded', 'failed', 'paused', 'let_go', 'superseded', 'lapsed');
-- In this order: from 'succeeded' on, the effect has happened.
create type aiflow.effect_state as enum ('intended', 'in_doubt', 'failed', 'succeeded', 'released', 'compensated');
create type aiflow.intent_outcome as enum ('not_applied', 'succeeded');
create type aiflow.intent_decision as enum ('happened', 'did_not_happen', 'retry');
create type aiflow.requeue_state as enum ('marked', 'cleared', 'consumed', 'void');

create table aiflow.execution (                -- cold: written at take-over and at the end only
    execution_id bigint generated always as identity primary key,
    identity aiflow.sha256 not null unique,    -- of the four columns below: such ids do not fit an index entry
    dag_id text not null,
    run_id text not null,
    task_id text not null,
    map_index integer not null,
    state aiflow.execution_state not null default 'running',
    generation aiflow.ordinal not null default 1,
    fence bigint not null default 1,
    result bytea,
    result_sha256 aiflow.sha256,
    seal bytea,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    heard_at timestamptz,
    check (fence >= 1),
    check ((state in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
    check (num_nonnulls(result, result_sha256) <= 1),
    check (state = 'succeeded' or num_nonnulls(result, result_sha256, seal) = 0)
) with (fillfactor = 90);

create table aiflow.lease (                    -- hot and tiny: only executions at work
    execution_id bigint primary key,           -- and no other index, so that every beat is a HOT update
    fence bigint not null,
    expires_at timestamptz not null,
    progress_at timestamptz not null,
    step_name text,
    wanted_by uuid
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table aiflow.attempt (
    execution_id bigint not null,
    fence bigint not null,
    number aiflow.ordinal not null,            -- grows with each (ti id, try number): what people read as "attempt 3"
    ti_id uuid not null,
    try_number integer not null,
    max_tries integer not null,
    retries integer not null,
    clear_number integer not null,
    run_after timestamptz,
    sign aiflow.attempt_sign not null,
    owner jsonb not null,
    upstream_digest aiflow.sha256,
    system_identifier bigint,                  -- of the server that committed this, and its timeline: null where hidden
    timeline integer,
    started_at timestamptz not null default clock_timestamp(),
    prior_lease_until timestamptz,
    ended_at timestamptz,
    ending aiflow.attempt_ending,
    primary key (execution_id, fence),
    check (fence >= 1 and number <= fence),
    check (jsonb_typeof(owner) = 'object'),
    check ((ended_at is null) = (ending is null))
) with (fillfactor = 80);

create table aiflow.step (                     -- append only
    execution_id bigint not null,
    generation aiflow.ordinal not null,
    step_key aiflow.sha256 not null,
    kind text not null,
    name text not null,
    unit text not null,
    fingerprint aiflow.sha256 not null,
    occurrence integer not null,
    fence bigint not null,
    result bytea,
    result_sha256 aiflow.sha256,
    seal bytea not null,
    ended_at timestamptz not null,             -- the worker's clock, for people; the database's is recorded_at
    duration_ms double precision not null,
    model text,
    response_id text,
    tokens_in bigint,                          -- null: no model call
    tokens_out bigint,
    cost numeric,
    recorded_at timestamptz not null default clock_timestamp(),
    primary key (execution_id, generation, step_key),
    check (num_nonnulls(result, result_sha256) = 1)
);

create table aiflow.event (                    -- append only
    execution_id bigint not null,
    fence bigint not null,
    seq bigint not null,
    at timestamptz not null default clock_timestamp(),
    kind text not null,
    data bytea not null,
    primary key (execution_id, fence, seq)
);

create table aiflow.effect (                   -- the deciding view of its intents
    effect_id bigint generated always as identity primary key,
    identity aiflow.sha256 not null unique,    -- of the three columns below, for the same reason
    namespace text not null,
    name text not null,
    key aiflow.business_key not null,
    state aiflow.effect_state not null,        -- in no index: a change of state is a HOT update
    intent_no integer not null,                -- of the current intent: every move is conditional on it
    succeeded_no integer,                      -- whose success counts: an earlier one's where that came late
    repeat integer not null default 0,
    execution_id bigint not null,              -- that wrote the current intent
    duplicate_suspected_at timestamptz,
    check ((state >= 'succeeded') = (succeeded_no is not null))
) with (fillfactor = 70);

create index effect_execution on aiflow.effect (execution_id);

create table aiflow.intent (                   -- a row of its own for ever
    intent_id uuid primary key,
    effect_id bigint not null references aiflow.effect,
    no aiflow.ordinal not null,
    repeat integer not null,
    execution_id bigint not null,
    fence bigint not null,
    generation aiflow.ordinal not null,
    request bytea,
    request_sha256 aiflow.sha256,
    request_fp aiflow.sha256 not null,
    timeout_s double precision not null,
    intended_at timestamptz not null default clock_timestamp(),
    outcome aiflow.intent_outcome,
    result bytea,
    result_sha256 aiflow.sha256,
    seal bytea,
    settled_at timestamptz,
    decision aiflow.intent_decision,
    decided_by text,
    decided_at timestamptz,
    unique (effect_id, no),
    check (num_nonnulls(request, request_sha256) = 1),
    check ((outcome is null) = (settled_at is null)),
    check (num_nonnulls(result, result_sha256) <= (outcome is not distinct from 'succeeded')::integer),
    check ((decision is null) = (decided_at is null))
) with (fillfactor = 70);

create table aiflow.requeue (                  -- found three times = one row
    execution_id bigint not null,
    fence bigint not null,
    ti_id uuid not null,
    clear_number integer not null,
    state aiflow.requeue_state not null,
    at timestamptz not null default clock_timestamp(),
    primary key (execution_id, fence)
);

-- An effect as readers see it, with the intent that decides it. `gone_in` counts from the end of
-- the lease under which the intent was written: the lease itself, what the next attempt found, or when it was given back.
create view aiflow.effect_now as
select
    e.effect_id, e.namespace, e.name, e.key, e.state, e.repeat, e.intent_no,
    i.intent_id, i.request, i.request_sha256, i.request_fp, i.result, i.result_sha256, i.seal,
    x.dag_id, x.run_id, x.task_id, x.map_index,
    i.execution_id, i.fence, i.generation, a.number, a.owner, i.intended_at, i.settled_at,
    coalesce(l.expires_at > clock_timestamp(), false) as live,
    extract(epoch from
        greatest(coalesce(l.expires_at, following.prior_lease_until, a.ended_at), i.intended_at)
        + make_interval(secs => i.timeout_s) - clock_timestamp()
    )::double precision as gone_in,
    e.duplicate_suspected_at is not null as duplicate_suspected,
    e.identity, e.execution_id as current_execution_id
from aiflow.effect e
join aiflow.intent i on i.effect_id = e.effect_id and i.no = coalesce(e.succeeded_no, e.intent_no)
join aiflow.execution x on x.execution_id = i.execution_id
join aiflow.attempt a on a.execution_id = i.execution_id and a.fence = i.fence
left join aiflow.lease l on l.execution_id = i.execution_id and l.fence = i.fence
left join aiflow.attempt following on following.execution_id = i.execution_id and following.fence = i.fence + 1;

-- Which server is this, and on which timeline: changed after a fail-over. A hosted server may hide either.
create function aiflow.server_identity(out system_identifier bigint, out timeline integer)
language plpgsql stable as $$
begin
    timeline := ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::integer;
    select s.system_identifier from pg_catalog.pg_control_system() s into system_identifier;
exception
    when insufficient_privilege or undefined_function or feature_not_supported then null;
end
$$;
