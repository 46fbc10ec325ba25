-- Everything that an attempt replays from, in one query: the steps of its generation, then the effects whose current
-- intent its execution wrote. A row is one or the other; an effect is one JSON object, so that ten thousand steps do not
-- carry its columns.
select
    step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256, seal, ended_at, duration_ms,
    model, response_id, tokens_in, tokens_out, cost, null::jsonb
from aiflow.step
where execution_id = %(execution_id)s and generation = %(generation)s
union all
select
    null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, to_jsonb(e)
from aiflow.effect_now e
where e.current_execution_id = %(execution_id)s
