-- The open questions of a run: a task waits for each of them.
select x.execution_id, q.number, q.kind::text, q.subject
from aiflow.execution x
join aiflow.question q on q.execution_id = x.execution_id and q.answer is null
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
    and (%(task_id)s::text is null or (x.task_id = %(task_id)s::text and x.map_index = %(map_index)s::integer))
    and x.state = 'paused' and (q.expires_at is null or q.expires_at > clock_timestamp())
order by q.number
