-- What was done here, the newest last. Each filter is left out where its value is null; what is at work is not done.
select * from (
    select e.act, e.namespace, e.name, e.key, e.dag_id, e.run_id, e.task_id, e.map_index, e.generation, e.done_at
    from aiflow_dedup.effect e
    where e.open is null
        and (%(dag_id)s::text is null or e.dag_id = %(dag_id)s::text)
        and (%(run_id)s::text is null or e.run_id = %(run_id)s::text)
        and (%(name)s::text is null or e.name = %(name)s::text)
        and (%(key)s::text is null or e.key = %(key)s::text)
    order by e.done_at desc, e.act
    limit %(limit)s
) newest
order by done_at, act
