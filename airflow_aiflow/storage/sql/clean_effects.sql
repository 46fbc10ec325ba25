-- The effects whose current intent these executions wrote, how many intents each has, and of which executions.
select
    e.execution_id, e.effect_id, e.state >= 'failed', i.number, i.executions
from aiflow.effect e
cross join lateral (
    select count(*) as number, array_agg(distinct n.execution_id) as executions
    from aiflow.intent n
    where n.effect_id = e.effect_id
) i
where e.execution_id = any (%(ids)s::bigint[])
order by e.effect_id
