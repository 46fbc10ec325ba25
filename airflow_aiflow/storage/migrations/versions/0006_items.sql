-- What other runs may reuse of recorded steps, and the items of maps that failed.
--
-- The way to a reusable step is a table of its own, not an index of `step`: to build one there would lock or scan millions
-- of rows, and most steps are never looked for. A record that was there before this revision is not found by it.

create table aiflow.reuse (                    -- append only
    reuse_key bigint not null,                 -- eight bytes of a hash: the row that it leads to decides
    recorded_at timestamptz not null default clock_timestamp(),
    execution_id bigint not null,
    generation aiflow.ordinal not null,
    step_key aiflow.sha256 not null
);

create index reuse_lookup on aiflow.reuse (reuse_key, recorded_at);

create type aiflow.item_state as enum (
    'at_work',                                 -- begun after a process was lost over the items beside it
    'failed',                                  -- the map ended with it
    'dead',                                    -- the map goes on without it
    'retry'                                    -- a person, or the task's failure, wants it tried once more
);

create table aiflow.failed_item (
    execution_id bigint not null,
    generation aiflow.ordinal not null,
    step_key aiflow.sha256 not null,
    name text not null,
    number integer not null check (number >= 0),      -- its place in the list
    item_key text,
    state aiflow.item_state not null,
    failures integer not null default 0 check (failures >= 0),
    kills integer not null default 0 check (kills >= 0),    -- processes that were lost while it was at work
    error bytea,
    fence bigint not null,                     -- of the attempt that wrote this last
    at timestamptz not null default clock_timestamp(),
    primary key (execution_id, generation, step_key),
    check (state not in ('failed', 'dead') or error is not null)
);
