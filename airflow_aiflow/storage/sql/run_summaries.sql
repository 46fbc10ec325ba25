-- Many runs at once, as lists show them.
select
    w.place, (count(*) filter (where l.expires_at > clock_timestamp()))::integer,
    (count(*) filter (where x.state = 'running'))::integer, (count(*) filter (where x.state = 'paused'))::integer,
    min(x.pause_reason) filter (where x.state = 'paused')
from unnest(%(dag_ids)s::text[], %(run_ids)s::text[]) with ordinality w (dag_id, run_id, place)
join aiflow.execution x
    on hashtextextended(x.dag_id, 0) = hashtextextended(w.dag_id, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(w.run_id, 0)
    and x.dag_id = w.dag_id and x.run_id = w.run_id
left join aiflow.lease l on l.execution_id = x.execution_id and l.fence = x.fence
group by w.place
