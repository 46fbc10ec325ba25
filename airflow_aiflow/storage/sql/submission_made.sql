update aiflow.submission set made_at = coalesce(made_at, clock_timestamp())
where submission_id = %(submission_id)s and refused is null
returning submission_id
