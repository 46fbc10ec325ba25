select
    step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256, seal, ended_at, duration_ms,
    model, response_id, tokens_in, tokens_out, cost, prints, arguments
from aiflow.step
where execution_id = %(execution_id)s and generation = %(generation)s and step_key = any(%(step_keys)b::bytea[])
