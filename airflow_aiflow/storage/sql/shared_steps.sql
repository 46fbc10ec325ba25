-- By the task's hashes to its executions, then one look into the steps' key for each of their generations and each key
-- that is wanted; the newest generation wins for each key.
select distinct on (s.step_key)
    s.step_key, s.kind, s.name, s.unit, s.fingerprint, s.occurrence, s.fence, s.result, s.result_sha256, s.seal,
    s.ended_at, s.duration_ms, s.model, s.response_id, s.tokens_in, s.tokens_out, s.cost, s.prints,
    s.execution_id, s.generation
from aiflow.execution me
join aiflow.attempt mine on mine.execution_id = me.execution_id and mine.fence = %(fence)s
join aiflow.execution x
    on hashtextextended(x.dag_id, 0) = hashtextextended(me.dag_id, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(me.run_id, 0)
    and hashtextextended(x.task_id, 0) = hashtextextended(me.task_id, 0)
    and x.dag_id = me.dag_id and x.run_id = me.run_id and x.task_id = me.task_id
    and x.execution_id <> me.execution_id
cross join generate_series(1, x.generation) g (generation)
cross join unnest(%(step_keys)s::bytea[]) wanted (step_key)
cross join lateral (                           -- `offset 0`: by the key, whatever the statistics say
    select t.* from aiflow.step t
    where t.execution_id = x.execution_id and t.generation = g.generation and t.step_key = wanted.step_key
    offset 0
) s
join aiflow.attempt a on a.execution_id = s.execution_id and a.fence = s.fence
left join aiflow.lease l on l.execution_id = s.execution_id and l.fence = s.fence and l.expires_at > clock_timestamp()
where me.execution_id = %(execution_id)s and a.clear_number < mine.clear_number and l.execution_id is null
order by s.step_key, s.generation desc, s.execution_id desc
