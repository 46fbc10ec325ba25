-- What moves submissions: a person's cancel and hold, their pace, callbacks, uploads.

alter type aiflow.attempt_ending add value 'cancelled';

alter table aiflow.submission
    add column retried_at timestamptz,             -- when a person last asked to run it again
    add column make_tries integer not null default 0 check (make_tries >= 0),
    add column make_after timestamptz,             -- its run could not be made: not before then again
    add column callback_url text;

create index submission_cancelled on aiflow.submission (cancel_asked_at) where cancel_asked_at is not null and finished_at is null;
create index submission_overdue on aiflow.submission (deadline) where deadline is not null and finished_at is null;
create index submission_told on aiflow.submission (submission_id) where callback_url is not null and finished_at is null;
create index submission_failed on aiflow.submission (finished_at) where callback_url is not null and state = 'failed';

create table aiflow.submit_pace (               -- one row a user, however many submissions
    submitted_by text primary key,
    free_at timestamptz not null                -- when all that was taken so far would have come at an even pace
) with (fillfactor = 50);

create table aiflow.callback (                  -- an outbox: written with the end that it tells of
    callback_id uuid primary key default gen_random_uuid(),
    submission_id uuid not null,
    state aiflow.submission_state not null check (state in ('succeeded', 'failed', 'cancelled')),
    url text not null,
    created_at timestamptz not null default clock_timestamp(),
    tries integer not null default 0 check (tries >= 0),
    next_at timestamptz default clock_timestamp(),    -- null: nobody tries any more
    delivered_at timestamptz,
    trouble text,
    check (delivered_at is null or next_at is null)
) with (fillfactor = 80);

create index callback_due on aiflow.callback (next_at) where next_at is not null;

create table aiflow.upload (
    upload_id uuid primary key,
    submitted_by text not null check (submitted_by <> ''),
    dag_id text not null,
    sha256 aiflow.sha256 not null,              -- as it was announced, and as it was found
    size bigint not null check (size >= 0),
    media_type text,
    name text,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    checked_at timestamptz                      -- when its bytes were what was announced, and came into the store
);

create index upload_expired on aiflow.upload (expires_at) where checked_at is null;

-- Cancelled before the run was made, and not yet checked: a maker that was killed may have made it.
create index submission_late on aiflow.submission (finished_at)
    where state = 'cancelled' and made_at is null and make_after is null;

create table aiflow.cursor_base (               -- what long cursors rest on, so that clients hold short ones
    base_id bytea primary key check (octet_length(base_id) = 16),    -- of the hash of places
    places bytea not null,
    used_at timestamptz not null default clock_timestamp()
);

create index cursor_base_used on aiflow.cursor_base (used_at);
