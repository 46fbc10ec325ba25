update aiflow.failed_item set state = 'retry', failures = 0, kills = 0
where execution_id = %(execution_id)s and generation = %(generation)s and state in ('dead', 'failed')
returning step_key
