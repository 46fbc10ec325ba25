select places from aiflow.cursor_base where base_id = %(base_id)s
