select to_jsonb(e) from aiflow.effect_now e where e.identity = %(identity)s
