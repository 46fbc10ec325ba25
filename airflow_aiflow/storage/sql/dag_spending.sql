-- What the last runs of a DAG spent on model calls: every generation, and calls that gave nothing to record.
select
    x.run_id, min(x.created_at), sum(c.calls)::bigint, sum(c.tokens_in)::bigint, sum(c.tokens_out)::bigint,
    sum(c.cost), sum(c.unpriced)::bigint, sum(c.wasted)::bigint
from aiflow.execution x
cross join lateral (
    select
        count(*) as calls, coalesce(sum(t.tokens_in), 0) as tokens_in, coalesce(sum(t.tokens_out), 0) as tokens_out,
        coalesce(sum(t.cost), 0) as cost, count(*) filter (where t.cost is null) as unpriced,
        count(*) filter (where t.wasted) as wasted
    from (
        select s.tokens_in, s.tokens_out, s.cost, false as wasted
        from aiflow.step s where s.execution_id = x.execution_id and s.tokens_in is not null
        union all
        select w.tokens_in, w.tokens_out, w.cost, true
        from aiflow.wasted_call w where w.execution_id = x.execution_id
    ) t
) c
where hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0) and x.dag_id = %(dag_id)s
group by x.run_id
order by min(x.created_at) desc, x.run_id
limit %(limit)s
