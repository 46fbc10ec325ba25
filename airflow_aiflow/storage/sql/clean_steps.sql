-- Delete steps of executions that are over, not more than `most`: an execution may have a million.
delete from aiflow.step where ctid = any (array(
    select s.ctid
    from unnest(%(ids)s::bigint[]) w (execution_id)
    cross join lateral (                       -- ordered, so that it goes by the index, whatever the statistics say
        select t.ctid from aiflow.step t
        where t.execution_id = w.execution_id
        order by t.execution_id, t.generation, t.step_key
        limit %(most)s
    ) s
    limit %(most)s
))
