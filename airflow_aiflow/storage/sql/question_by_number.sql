select to_jsonb(q) from aiflow.question_now q where q.number = %(number)s
