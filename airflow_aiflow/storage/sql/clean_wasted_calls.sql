-- As `clean_steps`: calls that gave nothing to record.
delete from aiflow.wasted_call where ctid = any (array(
    select s.ctid
    from unnest(%(ids)s::bigint[]) w (execution_id)
    cross join lateral (                       -- ordered, so that it goes by the index, whatever the statistics say
        select t.ctid from aiflow.wasted_call t
        where t.execution_id = w.execution_id
        order by t.execution_id, t.generation
        limit %(most)s
    ) s
    limit %(most)s
))
