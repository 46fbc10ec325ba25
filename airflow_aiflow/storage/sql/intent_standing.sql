-- What there is to say about a number: the intent itself, or the one that a question is about.
select
    i.number, i.outcome::text, i.settled_at, i.decision::text, i.decided_by, i.decided_at,
    n.state::text, n.namespace, n.name, n.key, current.number, n.intent_number, n.gone_in,
    w.said_by, w.said_at, q.kind::text
from (values (%(number)s::bigint)) asked (number)
left join aiflow.question q on q.number = asked.number
left join aiflow.intent i on i.number = asked.number or i.intent_id = q.intent_id
left join lateral (select v.* from aiflow.effect_now v where v.effect_id = i.effect_id offset 0) n on true
left join aiflow.intent current on current.effect_id = i.effect_id and current.no = n.intent_no
left join aiflow.word w on w.number = i.number and w.kind = 'released'
where i.number is not null or q.number is not null
