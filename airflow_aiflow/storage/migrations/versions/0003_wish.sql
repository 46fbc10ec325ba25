-- What a person wishes of a clear, and what an attempt was told to do after one: for who asks beforehand what a clear
-- would do.

create type aiflow.clear_word as enum ('auto', 'resume', 'fresh');

alter table aiflow.attempt add column on_clear aiflow.clear_word;

-- A wish is about the next attempt after one fence. Nobody has to take it away: a take-over raises the fence.
create table aiflow.wish (
    execution_id bigint not null references aiflow.execution,
    fence bigint not null,
    on_clear aiflow.clear_word not null check (on_clear <> 'auto'),
    at timestamptz not null default clock_timestamp(),
    cleared boolean not null default false,    -- whether Airflow has taken the clear that the wish is about
    primary key (execution_id, fence)
);
