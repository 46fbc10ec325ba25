-- Which of these DAGs have executions.
select d.dag_id from unnest(%(dag_ids)s::text[]) d(dag_id)
where exists (
    select from aiflow.execution x
    where hashtextextended(x.dag_id, 0) = hashtextextended(d.dag_id, 0) and x.dag_id = d.dag_id
)
