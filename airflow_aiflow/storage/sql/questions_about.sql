-- The doubts' questions about an intent, the newest first.
select to_jsonb(q) from aiflow.question_now q
join aiflow.intent i on i.intent_id = q.intent_id
where i.number = %(number)s and q.kind = 'doubt'
order by q.number desc
