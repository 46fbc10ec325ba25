-- Everything that an attempt replays from, in one query: the steps of its generation, then the effects whose current
-- intent its execution wrote. A row is one or the other; the other's columns are null.
select
    step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256, seal, ended_at, duration_ms,
    model, response_id, tokens_in, tokens_out, cost,
    null::bigint, null::text, null::text, null::text, null::text, null::integer, null::integer, null::uuid,
    null::bytea, null::bytea, null::bytea, null::bytea, null::bytea, null::bytea, null::text, null::text, null::text,
    null::integer, null::bigint, null::bigint, null::integer, null::integer, null::jsonb, null::timestamptz,
    null::timestamptz, null::boolean, null::double precision, null::boolean
from aiflow.step
where execution_id = %(execution_id)s and generation = %(generation)s
union all
select
    null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
    effect_id, namespace, name, key, state, repeat, intent_no, intent_id, request, request_sha256, request_fp, result,
    result_sha256, seal, dag_id, run_id, task_id, map_index, execution_id, fence, generation, number, owner,
    intended_at, settled_at, live, gone_in, duplicate_suspected
from aiflow.effect_now
where current_execution_id = %(execution_id)s
