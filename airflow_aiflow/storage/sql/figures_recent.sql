-- How the executions ended that ended within the last hour and have not begun again, and how often they were recovered.
with ended as materialized (
    select execution_id, state from aiflow.execution
    where finished_at >= statement_timestamp() - interval '1 hour'
    limit %(most)s
),
recovered as (
    select r.execution_id, count(*) as times
    from aiflow.requeue r join ended e on e.execution_id = r.execution_id
    where r.state in ('cleared', 'consumed')
    group by r.execution_id
)
select e.state::text, count(*), coalesce(sum(r.times), 0)::bigint
from ended e left join recovered r on r.execution_id = e.execution_id
group by e.state
