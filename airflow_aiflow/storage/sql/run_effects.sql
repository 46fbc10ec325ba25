-- The effects whose current intent an execution of the run wrote, counted by name and state; those without an outcome
-- with the numbers of their intents.
select
    x.execution_id, e.name, e.state::text, count(*)::integer,
    coalesce(array_agg(i.number order by i.number) filter (where e.state in ('intended', 'in_doubt')), array[]::bigint[])
from aiflow.execution x
join aiflow.effect e on e.execution_id = x.execution_id
join aiflow.intent i on i.effect_id = e.effect_id and i.no = e.intent_no
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
    and (%(task_id)s::text is null or (x.task_id = %(task_id)s::text and x.map_index = %(map_index)s::integer))
group by x.execution_id, e.name, e.state
order by x.execution_id, e.name, e.state
