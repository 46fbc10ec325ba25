-- What dashboards are told without a scan: running totals that each scrape carries on, over what was written since the
-- one before. The indexes find that: a few entries for each megabyte, as rows of these tables come in the order of time.
-- Rows that take the place of reaped ones widen a range towards the past, which a look at the latest does not mind.

create table aiflow.tally (
    name text not null,
    label text not null,                       -- empty: none
    value numeric not null check (value >= 0),
    primary key (name, label)
) with (fillfactor = 50);

create table aiflow.tally_mark (               -- one row
    one boolean primary key default true check (one),
    upto timestamptz not null default clock_timestamp(),      -- what was written before is in the tally
    probed_at timestamptz not null default clock_timestamp()  -- written to see how long a commit takes
) with (fillfactor = 50);
insert into aiflow.tally_mark default values;

create index step_recorded on aiflow.step using brin (recorded_at) with (autosummarize = on);
create index attempt_times on aiflow.attempt using brin (started_at, ended_at) with (autosummarize = on);
create index intent_intended on aiflow.intent using brin (intended_at) with (autosummarize = on);
create index execution_finished on aiflow.execution using brin (finished_at) with (autosummarize = on);

-- An incident may come to count long after it was found: so it says itself whether it has been.
alter table aiflow.incident add column tallied boolean not null default false;
create index incident_untallied on aiflow.incident (number)
    where not tallied and (report or decision in ('requeue', 'quarantine'));
