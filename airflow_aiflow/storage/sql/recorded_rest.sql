-- Where a generation has more steps than an attempt keeps in memory: those that no map made, and the sums of all.
select
    step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256, seal, ended_at, duration_ms,
    model, response_id, tokens_in, tokens_out, cost, prints, null::jsonb
from aiflow.step
where execution_id = %(execution_id)s and generation = %(generation)s and kind not in ('item', 'llm')
union all
select
    null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
    jsonb_build_object(
        'steps', count(*), 'calls', count(tokens_in), 'tokens_in', coalesce(sum(tokens_in), 0),
        'tokens_out', coalesce(sum(tokens_out), 0), 'cost', coalesce(sum(cost), 0)::text,
        'unpriced', count(tokens_in) - count(cost)
    )
from aiflow.step
where execution_id = %(execution_id)s and generation = %(generation)s
