select to_jsonb(n) from aiflow.intent i join aiflow.effect_now n on n.effect_id = i.effect_id where i.number = %(number)s
