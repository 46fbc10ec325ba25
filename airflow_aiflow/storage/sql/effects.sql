-- Effects by the number of the intent that counts. Each filter is left out where its value is null.
select to_jsonb(n) from aiflow.effect_now n
where n.intent_number > %(after)s
    and (%(dag_id)s::text is null or (
        hashtextextended(n.dag_id, 0) = hashtextextended(%(dag_id)s::text, 0) and n.dag_id = %(dag_id)s::text
    ))
    and (%(run_id)s::text is null or (
        hashtextextended(n.run_id, 0) = hashtextextended(%(run_id)s::text, 0) and n.run_id = %(run_id)s::text
    ))
    and (%(name)s::text is null or n.name = %(name)s::text)
    and (%(key)s::text is null or (
        hashtextextended(n.key, 0) = hashtextextended(%(key)s::text, 0) and n.key = %(key)s::text
    ))
order by n.intent_number
limit %(limit)s
