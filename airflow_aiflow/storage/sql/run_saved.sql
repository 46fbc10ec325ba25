-- What the executions of a run did not have to pay again in their current generations: recorded calls that later attempts
-- found, once for each of them, but not within one attempt that goes on after a reschedule; and answers of other runs.
select
    x.execution_id,
    (
        select max(a.started_at) from aiflow.attempt a
        where a.execution_id = x.execution_id and a.sign in ('first', 'cleared', 'made_again')
    ),
    (select count(*) from aiflow.attempt a where a.execution_id = x.execution_id)::integer,
    s.replayed_calls, s.replayed_cost, s.reused_calls,
    (
        select count(*) from aiflow.requeue r
        where r.execution_id = x.execution_id and r.state in ('cleared', 'consumed')
    )::integer
from aiflow.execution x
cross join lateral (
    select
        coalesce(sum(f.calls * f.later), 0)::bigint as replayed_calls, coalesce(sum(f.cost * f.later), 0) as replayed_cost,
        coalesce(sum(f.reused), 0)::bigint as reused_calls
    from (
        select
            count(s.tokens_in) as calls, coalesce(sum(s.cost), 0) as cost,
            count(*) filter (where s.kind = 'llm' and s.tokens_in is null) as reused,
            (
                select count(*) from aiflow.attempt a
                where a.execution_id = x.execution_id and a.fence > s.fence and a.sign <> 'same'
            ) as later
        from aiflow.step s
        where s.execution_id = x.execution_id and s.generation = x.generation
        group by s.fence
    ) f
) s
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
    and (%(task_id)s::text is null or (x.task_id = %(task_id)s::text and x.map_index = %(map_index)s::integer))
