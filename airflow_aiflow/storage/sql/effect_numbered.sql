select to_jsonb(n) from aiflow.effect_now n
where n.effect_id = (select i.effect_id from aiflow.intent i where i.number = %(number)s)
