select true from aiflow.lease where execution_id = %(execution_id)s and fence = %(fence)s
