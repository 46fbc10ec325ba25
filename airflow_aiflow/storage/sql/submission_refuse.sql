with up as (
    update aiflow.submission set state = 'failed', refused = %(why)s, finished_at = clock_timestamp()
    where submission_id = %(submission_id)s and state = 'queued' and made_at is null
    returning submission_id, state, callback_url
),
told as (
    insert into aiflow.callback (submission_id, state, url)
    select submission_id, state, callback_url from up where callback_url is not null
)
select submission_id from up
