-- How long ago recovery found an attempt of a task's to be lost: for those who follow a run from outside.
select extract(epoch from clock_timestamp() - found_at)::double precision
from aiflow.incident
where dag_id = %(dag_id)s and run_id = %(run_id)s and task_id = %(task_id)s and map_index = -1 and fence = %(fence)s
