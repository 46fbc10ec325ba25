-- Who wrote an intent of an effect that another execution has taken up since: such an execution is found through the
-- effects alone. Page by page along the primary key; the page's last effect comes with it.
with page as materialized (
    select e.effect_id, e.intent_no, e.execution_id
    from aiflow.effect e
    where e.effect_id > %(after)s
    order by e.effect_id
    limit %(most)s
)
select
    (select max(p.effect_id) from page p),
    array(
        select distinct i.execution_id
        from page p
        cross join lateral (                   -- `offset 0`: by the effect, whatever the statistics say
            select n.execution_id from aiflow.intent n where n.effect_id = p.effect_id and n.no < p.intent_no offset 0
        ) i
        where p.intent_no > 1 and i.execution_id <> p.execution_id
    )
