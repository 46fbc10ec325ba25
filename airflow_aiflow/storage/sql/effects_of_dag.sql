-- As `effects`, of one DAG or one of its runs: through its executions.
with page as materialized (
    select i.number, e.effect_id
    from aiflow.execution x
    join aiflow.effect e on e.execution_id = x.execution_id
    cross join lateral (
        select n.number from aiflow.intent n
        where n.effect_id = e.effect_id and n.no = coalesce(e.succeeded_no, e.intent_no)
        offset 0
    ) i
    where hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s::text, 0) and x.dag_id = %(dag_id)s::text
        and (%(run_id)s::text is null or (
            hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s::text, 0) and x.run_id = %(run_id)s::text
        ))
        and (%(name)s::text is null or e.name = %(name)s::text)
        and i.number > %(after)s
    order by i.number
    limit %(limit)s
)
select record.effect from page
cross join lateral (
    select to_jsonb(n) as effect from aiflow.effect_now n where n.effect_id = page.effect_id offset 0
) record
order by page.number
