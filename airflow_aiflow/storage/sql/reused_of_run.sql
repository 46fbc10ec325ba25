-- How many results a task took from other runs, by run: from the events of its maps, where they are not encrypted.
select r.key, sum(r.value::integer)::integer
from aiflow.execution x
join aiflow.event e on e.execution_id = x.execution_id and e.kind = 'items'
cross join lateral jsonb_each_text(convert_from(e.data, 'UTF8')::jsonb -> 'reused_from') r
where x.dag_id = %(dag_id)s and x.run_id = %(run_id)s and x.task_id = %(task_id)s and x.map_index = -1
group by r.key
order by r.key
