-- What some runs of a DAG paid and did not have to pay: all executions, all generations.
select
    w.run_id, min(x.created_at), count(*)::integer, sum(s.calls)::bigint, sum(s.cost), sum(s.unpriced)::bigint,
    sum(s.replayed_calls)::bigint, sum(s.replayed_cost), sum(s.reused)::bigint, sum(q.times)::bigint,
    sum(e.doubts)::bigint
from unnest(%(run_ids)s::text[]) w (run_id)
join aiflow.execution x
    on hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(w.run_id, 0)
    and x.dag_id = %(dag_id)s and x.run_id = w.run_id
cross join lateral (
    select
        coalesce(sum(f.calls), 0) as calls, coalesce(sum(f.cost), 0) as cost, coalesce(sum(f.unpriced), 0) as unpriced,
        coalesce(sum(f.reused), 0) as reused,
        coalesce(sum(f.calls * f.later) filter (where f.generation = x.generation), 0) as replayed_calls,
        coalesce(sum(f.cost * f.later) filter (where f.generation = x.generation), 0) as replayed_cost
    from (
        select
            s.generation, count(s.tokens_in) as calls, coalesce(sum(s.cost), 0) as cost,
            count(*) filter (where s.tokens_in is not null and s.cost is null) as unpriced,
            count(*) filter (where s.kind = 'llm' and s.tokens_in is null) as reused,
            (
                select count(*) from aiflow.attempt a
                where a.execution_id = x.execution_id and a.fence > s.fence and a.sign <> 'same'
            ) as later
        from aiflow.step s
        where s.execution_id = x.execution_id
        group by s.fence, s.generation
    ) f
) s
cross join lateral (
    select count(*) as times from aiflow.requeue r
    where r.execution_id = x.execution_id and r.state in ('cleared', 'consumed')
) q
cross join lateral (
    select count(*) as doubts from aiflow.effect e where e.execution_id = x.execution_id and e.doubted
) e
group by w.run_id
