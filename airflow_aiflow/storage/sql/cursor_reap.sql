delete from aiflow.cursor_base where used_at < clock_timestamp() - make_interval(days => %(days)s) returning true
