-- The attempts of an execution, the latest ones where there are very many.
select * from (
    select
        a.fence, a.number, a.sign::text, a.try_number, a.started_at, a.ended_at, a.ending::text,
        coalesce(l.expires_at > clock_timestamp(), false), a.died_in, a.owner
    from aiflow.attempt a
    left join aiflow.lease l on l.execution_id = a.execution_id and l.fence = a.fence
    where a.execution_id = %(execution_id)s
    order by a.fence desc
    limit %(limit)s
) a
order by a.fence
