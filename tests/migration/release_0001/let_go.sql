with gone as (
    delete from aiflow.lease where execution_id = %(execution_id)s and fence = %(fence)s
    returning execution_id, fence
)
update aiflow.attempt a set ended_at = clock_timestamp(), ending = 'let_go'
from gone
where a.execution_id = gone.execution_id and a.fence = gone.fence and a.ended_at is null
returning true
