-- What each step of a run spent on model calls: all map indexes and generations, and calls that gave nothing to record.
select
    x.task_id, t.name, count(*), sum(t.tokens_in)::bigint, sum(t.tokens_out)::bigint, coalesce(sum(t.cost), 0),
    count(*) filter (where t.cost is null), count(*) filter (where t.wasted)
from aiflow.execution x
cross join lateral (
    select s.name, s.tokens_in, s.tokens_out, s.cost, false as wasted
    from aiflow.step s where s.execution_id = x.execution_id and s.tokens_in is not null
    union all
    select w.name, w.tokens_in, w.tokens_out, w.cost, true
    from aiflow.wasted_call w where w.execution_id = x.execution_id
) t
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
group by x.task_id, t.name
order by min(x.execution_id), t.name
