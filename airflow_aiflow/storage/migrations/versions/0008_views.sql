-- What people read without a scan: sums by day and DAG, which the tally carries on with its own, and the way from an
-- artifact's address to who recorded it.
--
-- Not covered: days before this revision have no sums. The two indexes are built inside the transaction, for which tasks
-- wait that record: some seconds for ten million steps. Only the few rows with a large result are in them.

create table aiflow.dag_day (                  -- hot: one row a DAG and day
    day date not null,                         -- in UTC
    dag_id text not null,
    paid_calls bigint not null default 0,      -- wasted ones among them
    paid_cost numeric not null default 0,      -- US dollars, of those whose price is known
    unpriced bigint not null default 0,
    tokens_in bigint not null default 0,
    tokens_out bigint not null default 0,
    replayed_calls bigint not null default 0,  -- recorded before an attempt began that goes on, once for each of them
    replayed_cost numeric not null default 0,
    reused_calls bigint not null default 0,    -- answers of other runs
    runs bigint not null default 0,            -- whose first durable task began
    executions bigint not null default 0,      -- that began
    succeeded bigint not null default 0,       -- attempts that ended so
    failed bigint not null default 0,
    recoveries bigint not null default 0,      -- requeues of ours
    primary key (day, dag_id)
) with (fillfactor = 50);

create index step_artifact on aiflow.step (result_sha256) where result_sha256 is not null;
create index intent_artifact on aiflow.intent (result_sha256) where result_sha256 is not null;
