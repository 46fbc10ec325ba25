-- Take marks back; the next pass looks again.
with taken as (
    update aiflow.requeue r set state = 'void', version = r.version + 1
    from unnest(%(executions)s::bigint[], %(fences)s::bigint[], %(versions)s::integer[]) w(execution_id, fence, version)
    where r.execution_id = w.execution_id and r.fence = w.fence and r.version = w.version and r.state = 'marked'
    returning r.execution_id, r.fence
)
update aiflow.incident i set
    look_again_at = clock_timestamp(),
    decision = case when i.decision = 'requeue' then 'leave' else i.decision end
from taken t
where i.execution_id = t.execution_id and i.fence = t.fence
returning i.number
