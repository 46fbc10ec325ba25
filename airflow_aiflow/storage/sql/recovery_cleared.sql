-- Airflow has taken the clear of these marks, where they are still who marked them left them, or their attempt has begun
-- already.
update aiflow.requeue r set
    state = case when r.state = 'marked' then 'cleared'::aiflow.requeue_state else r.state end,
    clears = r.clears + 1, version = r.version + 1
from unnest(%(executions)s::bigint[], %(fences)s::bigint[], %(versions)s::integer[]) w(execution_id, fence, version)
where r.execution_id = w.execution_id and r.fence = w.fence and r.version = w.version
    and r.state in ('marked', 'consumed')
returning r.execution_id
