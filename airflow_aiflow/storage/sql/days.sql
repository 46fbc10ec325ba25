-- The sums of the last days by DAG.
select
    d.dag_id, sum(d.paid_calls)::bigint, sum(d.paid_cost), sum(d.unpriced)::bigint, sum(d.tokens_in)::bigint,
    sum(d.tokens_out)::bigint, sum(d.replayed_calls)::bigint, sum(d.replayed_cost), sum(d.reused_calls)::bigint,
    sum(d.runs)::bigint, sum(d.executions)::bigint, sum(d.succeeded)::bigint, sum(d.failed)::bigint,
    sum(d.recoveries)::bigint
from aiflow.dag_day d
where d.day > (statement_timestamp() at time zone 'UTC')::date - %(days)s::integer
group by d.dag_id
