update aiflow.callback set delivered_at = clock_timestamp(), next_at = null, trouble = null
where callback_id = %(callback_id)s
returning callback_id
