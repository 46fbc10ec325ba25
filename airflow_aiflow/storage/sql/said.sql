-- What persons said, the latest first: words on calls, and answers to questions. The answer to a doubt's question is the
-- word on its call, but for "fail".
with said as (
    (
        select
            w.number, w.said_at as at, w.said_by as by, case w.kind when 'released' then 'released' else i.decision::text end as said,
            'doubt' as what, e.name, e.key, e.namespace, e.state::text as state, null as subject, i.execution_id, w.note
        from aiflow.word w
        join aiflow.intent i on i.number = w.number
        join aiflow.effect e on e.effect_id = i.effect_id
        join aiflow.execution x on x.execution_id = i.execution_id
        where x.dag_id = any (%(dag_ids)s::text[])
        order by w.number desc
        limit %(limit)s
    )
    union all
    (
        select
            q.number, q.answered_at, q.answered_by, q.answer, q.kind::text, q.effect_name, q.key, q.namespace, null, q.subject,
            q.execution_id, q.note
        from aiflow.question q
        join aiflow.execution x on x.execution_id = q.execution_id
        where q.answer is not null and (q.kind <> 'doubt' or q.answer = %(fail)s) and x.dag_id = any (%(dag_ids)s::text[])
        order by q.number desc
        limit %(limit)s
    )
)
select
    s.number, s.at, s.by, s.said, s.what, s.name, s.key, s.namespace, s.state, s.subject, s.note,
    x.dag_id, x.run_id, x.task_id, x.map_index
from said s
join aiflow.execution x on x.execution_id = s.execution_id
order by s.at desc, s.number desc
limit %(limit)s
