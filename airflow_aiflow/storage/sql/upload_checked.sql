update aiflow.upload set checked_at = coalesce(checked_at, clock_timestamp())
where upload_id = %(upload_id)s
returning upload_id
