-- How many rows there are of each execution, in the order of the code's list of tables. Each count is a range of an index.
with answered as materialized (
    select q.execution_id, count(*) as number
    from aiflow.question q
    where q.execution_id = any (%(ids)s::bigint[]) and q.answer is not null
    group by q.execution_id
)
select
    w.execution_id,
    (select count(*) from aiflow.step t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.event t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.failed_item t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.wasted_call t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.label t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.requeue t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.incident t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.model_wait t where t.execution_id = w.execution_id),
    (select count(*) from aiflow.wish t where t.execution_id = w.execution_id),
    coalesce((select a.number from answered a where a.execution_id = w.execution_id), 0),
    (select count(*) from aiflow.attempt t where t.execution_id = w.execution_id)
from unnest(%(ids)s::bigint[]) w (execution_id)
