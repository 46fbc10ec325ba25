-- How far an execution is, and which process is at work on it: for those who follow a run from outside.
select
    x.state,
    x.fence,
    a.number,
    a.owner,
    a.ended_at is not null as ended,
    (select count(*) from aiflow.step s
      where s.execution_id = x.execution_id and s.generation = x.generation and s.name = %(first)s) as first_done,
    (select count(*) from aiflow.step s
      where s.execution_id = x.execution_id and s.generation = x.generation and s.name = %(then)s) as then_done,
    (select count(*) from aiflow.step s
      where s.execution_id = x.execution_id and s.fence = x.fence and s.kind = 'llm') as done_by_attempt,
    (select sum(s.cost) from aiflow.step s where s.execution_id = x.execution_id) as cost,
    x.result
from aiflow.execution x
join aiflow.attempt a on a.execution_id = x.execution_id and a.fence = x.fence
where x.dag_id = %(dag_id)s and x.run_id = %(run_id)s and x.task_id = %(task_id)s and x.map_index = -1
