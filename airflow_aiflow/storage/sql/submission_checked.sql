-- Of one that was cancelled before its run was made: it has none, or it was ended.
update aiflow.submission set make_after = 'infinity'
where submission_id = %(submission_id)s and state = 'cancelled' and made_at is null
returning submission_id
