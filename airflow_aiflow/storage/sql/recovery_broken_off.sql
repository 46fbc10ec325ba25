-- Requeues whose attempt has begun, and of which nobody said that Airflow has taken all of it. Younger ones may still be
-- about to be told of.
select r.execution_id, r.fence, e.dag_id, e.run_id, e.task_id, e.map_index
from (                                         -- `offset 0`: by `requeue_at`, whatever the statistics say
    select o.execution_id, o.fence, o.at from aiflow.requeue o
    where o.at > statement_timestamp() - make_interval(secs => %(window)s)
        and o.at <= statement_timestamp() - make_interval(secs => %(mark_seconds)s)
        and o.state = 'consumed' and o.clears = 0
    order by o.at
    limit %(most)s
    offset 0
) r
cross join lateral (
    select x.dag_id, x.run_id, x.task_id, x.map_index from aiflow.execution x
    where x.execution_id = r.execution_id
    offset 0
) e
order by r.at, r.execution_id
