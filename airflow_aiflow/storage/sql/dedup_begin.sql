-- The first statement of a transactional effect. A racer waits here, on the unique key, until we commit or roll back. No
-- row: the effect is done already, or the store's own row is gone. Numbered parameters: it is sent by libpq's own calls.
insert into aiflow_dedup.effect (
    identity, namespace, name, key, act, open, request, request_fp, dag_id, run_id, task_id, map_index, generation
)
select $1::bytea, $2::text, $3::text, $4::text, $5::uuid, 0, $6::bytea, $7::bytea, $8::text, $9::text, $10::text,
    $11::integer, $12::integer
from aiflow_dedup.store
where version = 1
on conflict (identity) do nothing
returning (select store_id from aiflow_dedup.store)
