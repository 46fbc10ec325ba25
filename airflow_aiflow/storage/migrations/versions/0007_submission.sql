-- Submissions: an outbox of DAG runs, and what a client asks about later.

create type aiflow.submission_state as enum ('queued', 'running', 'paused', 'succeeded', 'failed', 'cancelled');

create table aiflow.submission (
    submission_id uuid primary key,            -- a UUIDv7 of the server that wrote it: sorts by time
    identity aiflow.sha256 not null,           -- of user, pipeline and key
    "window" aiflow.ordinal not null,          -- which use of the key
    submitted_by text not null check (submitted_by <> ''),
    dag_id text not null,
    run_id text not null,
    key aiflow.business_key not null,
    key_until timestamptz not null,            -- until then the key is this submission's
    request_fp aiflow.sha256 not null,
    input bytea not null,
    labels jsonb not null,
    priority integer not null,
    deadline timestamptz,
    state aiflow.submission_state not null default 'queued',
    created_at timestamptz not null default clock_timestamp(),
    made_at timestamptz,                       -- when its DAG run was there
    refused text,                              -- why none can be made
    cancel_asked_at timestamptz,
    hold_asked_at timestamptz,
    finished_at timestamptz,
    unique (identity, "window"),
    check (jsonb_typeof(labels) = 'object'),
    check ((state in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
    check (refused is null or (state = 'failed' and made_at is null))
) with (fillfactor = 80);

create index submission_unmade on aiflow.submission (priority desc, created_at) where made_at is null and finished_at is null;
create index submission_open on aiflow.submission (submission_id) where finished_at is null;
create index submission_run on aiflow.submission (hashtextextended(dag_id, 0), hashtextextended(run_id, 0));
create index submission_by on aiflow.submission (hashtextextended(submitted_by, 0), submission_id);
create index submission_labels on aiflow.submission using gin (labels jsonb_path_ops);
