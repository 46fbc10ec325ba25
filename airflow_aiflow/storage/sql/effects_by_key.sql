-- As `effects`, of one business key.
with page as materialized (
    select i.number, e.effect_id
    from aiflow.effect e
    join aiflow.execution x on x.execution_id = e.execution_id
    cross join lateral (
        select n.number from aiflow.intent n
        where n.effect_id = e.effect_id and n.no = coalesce(e.succeeded_no, e.intent_no)
        offset 0
    ) i
    where hashtextextended(e.key, 0) = hashtextextended(%(key)s::text, 0) and e.key = %(key)s::text
        and (%(dag_id)s::text is null or x.dag_id = %(dag_id)s::text)
        and (%(run_id)s::text is null or x.run_id = %(run_id)s::text)
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
