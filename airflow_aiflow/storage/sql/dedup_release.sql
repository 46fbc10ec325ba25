-- A person's word that what this very try did may be done once more: the row goes, and the word keeps what it said.
with gone as (
    delete from aiflow_dedup.effect e where e.act = %(act)s and e.open is null returning e.*
)
insert into aiflow_dedup.released (
    act, identity, namespace, name, key, request, request_fp, dag_id, run_id, task_id, map_index, generation, done_at,
    said_by, note
)
select
    act, identity, namespace, name, key, request, request_fp, dag_id, run_id, task_id, map_index, generation, done_at,
    %(by)s, %(note)s
from gone
returning name, key, dag_id, run_id, task_id, map_index
