-- As `clean_steps`: events.
delete from aiflow.event where ctid = any (array(
    select s.ctid
    from unnest(%(ids)s::bigint[]) w (execution_id)
    cross join lateral (                       -- ordered, so that it goes by the index, whatever the statistics say
        select t.ctid from aiflow.event t
        where t.execution_id = w.execution_id
        order by t.execution_id, t.fence, t.seq
        limit %(most)s
    ) s
    limit %(most)s
))
