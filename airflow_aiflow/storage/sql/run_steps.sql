-- The recorded steps of the current generations of a run's executions, in the order in which they were committed.
select
    x.task_id, x.map_index, s.kind, s.name, s.unit, a.number, s.ended_at, s.duration_ms, s.model,
    s.tokens_in, s.tokens_out, s.cost, octet_length(s.result)
from aiflow.execution x
join aiflow.step s on s.execution_id = x.execution_id and s.generation = x.generation
join aiflow.attempt a on a.execution_id = s.execution_id and a.fence = s.fence
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
    and (%(task_id)s::text is null or x.task_id = %(task_id)s)
    and (%(map_index)s::integer is null or x.map_index = %(map_index)s)
order by x.execution_id, s.recorded_at, s.step_key
limit %(limit)s
