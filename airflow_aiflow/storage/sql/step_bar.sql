-- One step as a bar.
select
    s.step_key, s.kind, s.name, s.unit, s.fence, s.ended_at, s.duration_ms, s.recorded_at, s.tokens_in, s.cost, a.started_at
from aiflow.step s
join aiflow.attempt a on a.execution_id = s.execution_id and a.fence = s.fence
where s.execution_id = %(execution_id)s and s.generation = %(generation)s and s.step_key = %(step_key)s
