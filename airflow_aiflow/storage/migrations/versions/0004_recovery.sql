-- Recovery: what tells a stalled execution, what was done about it, and what was found. Nothing that the code before
-- writes or reads is taken away: a new column has a default or is null, which rewrites no table.
--
-- Not covered: the two indexes of `execution` are built inside the transaction, for which tasks wait that start or end:
-- some seconds for a million rows. Nothing but a ledger that was in no release pays that.

create type aiflow.recovery_word as enum ('auto', 'rerun', 'resume', 'careful', 'off');
create type aiflow.incident_decision as enum ('leave', 'requeue', 'quarantine', 'settle');
-- What an incident's look was made on: another basis is another look, whatever was to be left alone until when.
create type aiflow.stall_basis as enum ('live', 'dead', 'lapsed', 'paused', 'unheard', 'outside');

alter table aiflow.attempt
    add column recovery aiflow.recovery_word not null default 'auto',
    add column max_recoveries integer,         -- null: the deployment's word
    add column died_in text,                   -- the step that the lease named when the attempt lapsed or was superseded
    add check (max_recoveries >= 0);

alter table aiflow.lease add column step_timeout double precision;  -- of the step in hand, by its own word, in seconds

-- The clears of ours that an open mark stands for are those above `clear_number`, up to `clear_until`: a later clear of
-- ours in the same run raises the run's number for every task of it.
alter table aiflow.requeue
    add column clear_until integer,            -- null: the next one alone
    add column may_clear integer not null default 1,  -- by how much what follows the mark may raise that number
    add column clears integer not null default 0,   -- that Airflow has taken
    add column version integer not null default 1,  -- grows with each change: what a mark is compared with
    add check (clear_until > clear_number),
    add check (may_clear >= 1 and clears >= 0 and version >= 1);
create index requeue_at on aiflow.requeue (at);

-- The few that may need help: at work, paused, or done and not heard of. Not generated columns, which would rewrite the
-- table: whoever ends or hears of an execution writes another index entry.
create index execution_open on aiflow.execution (state, execution_id)
    where state in ('running', 'paused') or (state = 'succeeded' and heard_at is null);
-- The latest executions of a task, for its history. Hashes, as in execution_task.
create index execution_history on aiflow.execution
    (hashtextextended(dag_id, 0), hashtextextended(task_id, 0), execution_id);

create table aiflow.incident (                 -- one a fence, however often it is found
    number bigint generated always as identity primary key,
    execution_id bigint,                       -- null: nothing of it ever ran durable
    fence bigint not null,
    identity aiflow.sha256 unique,             -- of what has no execution
    dag_id text not null,
    run_id text not null,
    task_id text not null,                     -- empty: the run as a whole
    map_index integer not null,
    kind text not null,
    basis aiflow.stall_basis not null,
    decision aiflow.incident_decision not null,
    why text not null,
    report boolean not null,                   -- whether somebody should hear of it
    found_at timestamptz not null default clock_timestamp(),
    basis_at timestamptz not null default clock_timestamp(),
    decided_at timestamptz not null default clock_timestamp(),
    look_again_at timestamptz not null,
    detected_after double precision not null,  -- seconds
    alerted_at timestamptz,
    evidence bytea,
    unique (execution_id, fence),
    check (num_nonnulls(execution_id, identity) = 1),
    check (fence >= 0 and detected_after >= 0)
) with (fillfactor = 80);
create index incident_untold on aiflow.incident (number) where report and alerted_at is null;

create table aiflow.told (                     -- doubts that somebody was told of, once each
    number bigint primary key references aiflow.intent (number),
    told_at timestamptz not null default clock_timestamp()
);
