-- Nothing of these requeues is left to be done: their attempts have begun, so that Airflow has taken a clear.
update aiflow.requeue r set clears = 1, version = r.version + 1
from unnest(%(executions)s::bigint[], %(fences)s::bigint[]) w(execution_id, fence)
where r.execution_id = w.execution_id and r.fence = w.fence and r.state = 'consumed' and r.clears = 0
returning r.execution_id
