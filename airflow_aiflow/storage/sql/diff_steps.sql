-- What a generation has recorded, to be compared with another: hashes instead of results. What is kept of the
-- arguments begins with their names.
select
    s.step_key, s.kind, s.name, s.unit, coalesce(s.result_sha256, sha256(s.result)), s.prints, s.duration_ms, s.model,
    s.tokens_in, s.tokens_out, s.cost,
    substring(s.arguments from 1 for %(names)s)
from aiflow.step s
where s.execution_id = %(execution_id)s and s.generation = %(generation)s
order by s.recorded_at, s.step_key
limit %(limit)s
