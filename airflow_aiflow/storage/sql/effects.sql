-- A page of effects by the number of the intent that counts. Each filter is left out where its value is null.
with page as materialized (
    select i.number, e.effect_id
    from aiflow.intent i
    cross join lateral (                       -- `offset 0`: go by the intents' numbers, whatever the statistics say
        select o.effect_id from aiflow.effect o
        join aiflow.execution x on x.execution_id = o.execution_id
        where o.effect_id = i.effect_id and i.no = coalesce(o.succeeded_no, o.intent_no)
            and (%(run_id)s::text is null or x.run_id = %(run_id)s::text)
            and (%(name)s::text is null or o.name = %(name)s::text)
        offset 0
    ) e
    where i.number > %(after)s
    order by i.number
    limit %(limit)s
)
select record.effect from page
cross join lateral (
    select to_jsonb(n) as effect from aiflow.effect_now n where n.effect_id = page.effect_id offset 0
) record
order by page.number
