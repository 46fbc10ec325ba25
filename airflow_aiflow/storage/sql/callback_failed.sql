update aiflow.callback set trouble = %(why)s, next_at = case when tries < %(most)s then next_at end
where callback_id = %(callback_id)s and delivered_at is null
returning callback_id
