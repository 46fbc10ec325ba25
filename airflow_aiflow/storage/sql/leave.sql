-- An attempt leaves its open call on purpose, for so many seconds; or has come back to it (null), and holds it from now on.
with held as materialized (
    select execution_id, fence from aiflow.lease
    where execution_id = %(execution_id)s and fence = %(fence)s and expires_at > clock_timestamp()
    for share
)
update aiflow.intent i set
    left_until = clock_timestamp() + make_interval(secs => %(seconds)s::double precision),
    fence = held.fence
from held
where i.intent_id = %(intent_id)s and i.execution_id = held.execution_id and i.outcome is null and i.decision is null
returning true
