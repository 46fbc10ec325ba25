-- Tasks whose executions bear this label, of some DAGs, the newest first; of a mapped one its first map index alone.
select f.dag_id, f.run_id, f.task_id, min(f.map_index)
from (
    select x.dag_id, x.run_id, x.task_id, x.map_index, x.execution_id
    from aiflow.label b
    join aiflow.execution x on x.execution_id = b.execution_id
    where b.name = %(name)s and b.value = %(value)s and x.dag_id = any (%(dag_ids)s::text[])
    order by b.execution_id desc
    limit %(most)s
) f
group by f.dag_id, f.run_id, f.task_id
order by max(f.execution_id) desc
limit %(limit)s
