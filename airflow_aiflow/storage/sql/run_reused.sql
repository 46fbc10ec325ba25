-- The model calls of a run whose answers came from other runs, with what leads to the records that were paid for.
select s.execution_id, x.dag_id, x.task_id, s.name, s.fingerprint, s.occurrence
from aiflow.execution x
join aiflow.step s on s.execution_id = x.execution_id and s.generation = x.generation
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
    and (%(task_id)s::text is null or (x.task_id = %(task_id)s::text and x.map_index = %(map_index)s::integer))
    and s.kind = 'llm' and s.tokens_in is null
limit %(limit)s
