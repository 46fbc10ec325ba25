-- Where the last two attempts of each execution of some runs end now; -1: such an attempt has written nothing yet.
select w.place, x.execution_id, a.fence, coalesce(e.seq, -1)
from unnest(%(dag_ids)b::text[], %(run_ids)b::text[]) with ordinality w (dag_id, run_id, place)
join aiflow.execution x
    on hashtextextended(x.dag_id, 0) = hashtextextended(w.dag_id, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(w.run_id, 0)
    and x.dag_id = w.dag_id and x.run_id = w.run_id
join aiflow.attempt a on a.execution_id = x.execution_id and a.fence > x.fence - 2
left join lateral (
    select e.seq from aiflow.event e
    where e.execution_id = a.execution_id and e.fence = a.fence
    order by e.seq desc
    limit 1
) e on true
