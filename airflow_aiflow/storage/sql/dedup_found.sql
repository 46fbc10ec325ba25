-- What the dedup table knows of an effect, and which store it is: no row, the store's own is gone.
select
    s.store_id, s.version,
    e.act, e.request, e.request_fp, e.result, e.result_sha256, e.seal, e.dag_id, e.run_id, e.task_id, e.map_index,
    e.generation, e.done_at
from aiflow_dedup.store s
left join aiflow_dedup.effect e on e.identity = %(identity)s
