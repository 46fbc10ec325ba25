update aiflow.execution set heard_at = coalesce(heard_at, clock_timestamp())
where execution_id = %(execution_id)s and fence = %(fence)s and state = 'succeeded'
returning true
