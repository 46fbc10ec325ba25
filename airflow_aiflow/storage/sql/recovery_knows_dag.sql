-- Which of these DAGs have executions; `limit` sees to it that each is looked up by itself.
select d.dag_id from unnest(%(dag_ids)s::text[]) d(dag_id)
cross join lateral (
    select from aiflow.execution x
    where hashtextextended(x.dag_id, 0) = hashtextextended(d.dag_id, 0) and x.dag_id = d.dag_id
    limit 1
) known
