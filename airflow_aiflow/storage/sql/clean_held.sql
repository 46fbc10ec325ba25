-- Which of these executions must stay, and why: the first reason of each. What has a reason is never touched.
with working as materialized (                 -- a run made again under the old id begins with one of its tasks
    select distinct o.dag_id, o.run_id from aiflow.lease l
    cross join lateral (                       -- `offset 0`: by the execution, whatever the statistics say
        select e.dag_id, e.run_id from aiflow.execution e where e.execution_id = l.execution_id offset 0
    ) o
),
asking as materialized (
    select distinct q.execution_id from aiflow.question q where q.answer is null
),
calling as materialized (
    select distinct h.execution_id from aiflow.budget_hold h where h.until > clock_timestamp()
)
select w.execution_id, r.reason
from unnest(%(ids)s::bigint[]) w (execution_id)
cross join lateral (
    select e.execution_id, e.dag_id, e.run_id from aiflow.execution e where e.execution_id = w.execution_id offset 0
) x
cross join lateral (
    select case
        when exists (select from working k where k.dag_id = x.dag_id and k.run_id = x.run_id) then 'lease'
        when exists (
            select from aiflow.effect e where e.execution_id = x.execution_id and e.state in ('intended', 'in_doubt')
        ) then 'effect'
        when exists (select from asking q where q.execution_id = x.execution_id) then 'question'
        when exists (
            select from aiflow.requeue r where r.execution_id = x.execution_id and r.state in ('marked', 'cleared')
        ) then 'requeue'
        when exists (select from calling c where c.execution_id = x.execution_id) then 'call'
        when exists (
            select from aiflow.submission s
            where
                hashtextextended(s.dag_id, 0) = hashtextextended(x.dag_id, 0)
                and hashtextextended(s.run_id, 0) = hashtextextended(x.run_id, 0)
                and s.dag_id = x.dag_id and s.run_id = x.run_id
                and (
                    s.finished_at is null or s.finished_at >= %(before)s::timestamptz
                    or s.key_until > clock_timestamp()
                )
        ) then 'submission'
    end as reason
) r
where r.reason is not null
