update aiflow.submission set state = 'failed', refused = %(why)s, finished_at = clock_timestamp()
where submission_id = %(submission_id)s and state = 'queued' and made_at is null
returning submission_id
