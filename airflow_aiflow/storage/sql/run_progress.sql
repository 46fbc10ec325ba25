-- The executions of a run that are at work: the step in hand, and what each said of its progress among its latest events.
select x.execution_id, l.step_name, e.at, e.data, statement_timestamp()
from aiflow.execution x
join aiflow.lease l on l.execution_id = x.execution_id and l.fence = x.fence and l.expires_at > statement_timestamp()
left join lateral (
    select e.seq, e.at, e.data
    from (
        select e.seq, e.at, e.kind, e.data from aiflow.event e
        where e.execution_id = x.execution_id and e.fence = x.fence
        order by e.seq desc
        limit %(events)s
    ) e
    where e.kind = 'progress'
) e on true
where
    hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
    and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
    and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s
order by x.execution_id, e.seq
