-- Who recorded an artifact: steps, and calls of effects as results.
(
    select x.dag_id, x.run_id, x.task_id, x.map_index, s.name, s.step_key, null::bigint
    from aiflow.step s
    join aiflow.execution x on x.execution_id = s.execution_id
    where s.result_sha256 between %(first)s and %(last)s and x.dag_id = any (%(dag_ids)s::text[])
    limit %(limit)s
)
union all
(
    select x.dag_id, x.run_id, x.task_id, x.map_index, e.name, null, i.number
    from aiflow.intent i
    join aiflow.effect e on e.effect_id = i.effect_id
    join aiflow.execution x on x.execution_id = i.execution_id
    where i.result_sha256 between %(first)s and %(last)s and x.dag_id = any (%(dag_ids)s::text[])
    limit %(limit)s
)
