-- Everything that an attempt replays from, in one query: the steps of its generation, the effects whose current intent
-- its execution wrote, or the execution by which persons take them back, and which attempt held which fence. A row is one
-- of these; all but a step are a JSON object, so that ten thousand steps do not carry their columns.
(
    select
        step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256, seal, ended_at, duration_ms,
        model, response_id, tokens_in, tokens_out, cost, prints, null::jsonb
    from aiflow.step
    where execution_id = %(execution_id)s and generation = %(generation)s
    limit %(most)s                             -- a map of a million items is read in chunks, as it reaches them
)
union all
select
    null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, to_jsonb(e)
from aiflow.effect_now e
where e.current_execution_id = %(execution_id)s
union all
select
    null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, to_jsonb(u)
from aiflow.execution me
join aiflow.execution x
    on hashtextextended(x.dag_id, 0) = hashtextextended(me.dag_id, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(me.run_id, 0)
    and hashtextextended(x.task_id, 0) = hashtextextended(me.task_id || '/undo', 0)
    and x.dag_id = me.dag_id and x.run_id = me.run_id and x.task_id = me.task_id || '/undo' and x.map_index = me.map_index
cross join lateral (                           -- `offset 0`: by the execution, whatever the statistics say
    select n.* from aiflow.effect_now n where n.current_execution_id = x.execution_id offset 0
) u
where me.execution_id = %(execution_id)s
union all
select
    null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
    jsonb_build_object('numbers', jsonb_object_agg(fence, number))
from aiflow.attempt
where execution_id = %(execution_id)s
