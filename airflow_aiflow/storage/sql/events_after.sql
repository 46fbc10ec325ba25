-- Behind each reader's position in the last two attempts that it knows of an execution, and in all later ones.
with place as materialized (
    select * from unnest(%(pks)b::bigint[], %(fences)b::bigint[], %(seqs)b::bigint[]) p (execution_id, fence, seq)
)
select x.execution_id, a.fence, e.seq, x.task_id, x.map_index, a.number, e.at, e.kind, e.data, w.place
from unnest(%(dag_ids)b::text[], %(run_ids)b::text[]) with ordinality w (dag_id, run_id, place)
join aiflow.execution x
    on hashtextextended(x.dag_id, 0) = hashtextextended(w.dag_id, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(w.run_id, 0)
    and x.dag_id = w.dag_id and x.run_id = w.run_id
join aiflow.attempt a
    on a.execution_id = x.execution_id
    and a.fence >= coalesce((select min(p.fence) from place p where p.execution_id = x.execution_id), 0)
left join place p on p.execution_id = a.execution_id and p.fence = a.fence
cross join lateral (
    -- By time, but never against an attempt's own order: the server's clock may be set back, and a page ends somewhere.
    select o.seq, o.at, o.kind, o.data, max(o.at) over (order by o.seq) as told
    from (
        select e.seq, e.at, e.kind, e.data from aiflow.event e
        where e.execution_id = a.execution_id and e.fence = a.fence and e.seq > coalesce(p.seq, -1)
        order by e.seq
        limit %(limit)s
    ) o
) e
order by e.told, x.execution_id, a.fence, e.seq
limit %(limit)s
