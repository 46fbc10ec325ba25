-- Steps of one name and unit in the generation before that the next one does not have: one of them may be the former self
-- of a step that changed.
select
    s.step_key, s.kind, s.name, s.unit, s.fingerprint, s.occurrence, s.fence, s.result, s.result_sha256, s.seal, s.ended_at,
    s.duration_ms, s.model, s.response_id, s.tokens_in, s.tokens_out, s.cost, s.prints,
    substring(s.arguments from 1 for %(names)s)
from aiflow.step s
where s.execution_id = %(execution_id)s and s.generation = %(generation)s - 1 and s.name = %(name)s and s.unit = %(unit)s
    and (s.step_key = %(step_key)s or not exists (
        select from aiflow.step o
        where o.execution_id = s.execution_id and o.generation = s.generation + 1 and o.step_key = s.step_key
    ))
order by s.recorded_at
limit %(limit)s
