-- Executions of runs with this id, of some DAGs.
select x.dag_id, x.run_id, x.task_id, x.map_index
from unnest(%(dag_ids)s::text[]) w (dag_id)
join aiflow.execution x
    on hashtextextended(x.dag_id, 0) = hashtextextended(w.dag_id, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = w.dag_id and x.run_id = %(run_id)s
order by x.execution_id
limit %(limit)s
