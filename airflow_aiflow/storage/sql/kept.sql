-- Of the steps with these keys what a replay needs: a map reads a million of them, in chunks.
select
    step_key, result, result_sha256, seal, (extract(epoch from ended_at) * 1000000)::bigint, fence,
    tokens_in, tokens_out, cost
from aiflow.step
where execution_id = %(execution_id)s and generation = %(generation)s and step_key = any(%(step_keys)b::bytea[])
