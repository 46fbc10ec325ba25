-- The executions of a run as they stand, each with what its current generation has recorded.
select
    x.execution_id, x.dag_id, x.run_id, x.task_id, x.map_index, x.state::text, x.generation,
    x.heard_at is not null, a.number, a.sign::text, a.on_clear::text, a.started_at, x.finished_at,
    case when x.state = 'paused' then x.pause_reason end,
    coalesce(l.expires_at > clock_timestamp(), false),
    s.steps, s.calls, s.tokens_in, s.tokens_out, s.cost, s.unpriced,
    (select jsonb_object_agg(b.name, b.value) from aiflow.label b where b.execution_id = x.execution_id)
from aiflow.execution x
join aiflow.attempt a on a.execution_id = x.execution_id and a.fence = x.fence
left join aiflow.lease l on l.execution_id = x.execution_id and l.fence = x.fence
cross join lateral (
    select
        count(*)::integer as steps, count(s.tokens_in)::integer as calls,
        coalesce(sum(s.tokens_in), 0)::bigint as tokens_in, coalesce(sum(s.tokens_out), 0)::bigint as tokens_out,
        coalesce(sum(s.cost), 0) as cost,
        (count(*) filter (where s.tokens_in is not null and s.cost is null))::integer as unpriced
    from aiflow.step s
    where s.execution_id = x.execution_id and s.generation = x.generation
) s
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
    and (%(task_id)s::text is null or (x.task_id = %(task_id)s::text and x.map_index = %(map_index)s::integer))
order by x.execution_id
