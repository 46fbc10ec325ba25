-- Doubts that nobody is at work on and nobody was told of, the oldest first. Found by their partial index; the view is
-- asked from the side (`lateral ... offset 0`): it reads the clock, and so is never merged into a query.
--
-- Not covered: a doubt that another execution with the same key is at work on is told as well.
with doubted as materialized (
    select i.number, e.effect_id
    from aiflow.effect e
    join aiflow.intent i on i.effect_id = e.effect_id and i.no = e.intent_no
    where e.doubted
        and not exists (select from aiflow.told t where t.number = i.number)
        and not exists (
            select from aiflow.lease l
            where l.execution_id = e.execution_id
                and l.expires_at > statement_timestamp() - make_interval(secs => %(grace)s)
        )
        and not exists (
            select from aiflow.attempt a
            join aiflow.execution x on x.execution_id = a.execution_id and x.fence = a.fence
            where a.execution_id = e.execution_id
                and a.ended_at > statement_timestamp() - make_interval(secs => %(grace)s)
        )
    order by i.number
    limit %(limit)s
)
select to_jsonb(n)
from doubted d
cross join lateral (select v.* from aiflow.effect_now v where v.effect_id = d.effect_id offset 0) n
where n.state = 'in_doubt'
order by d.number
