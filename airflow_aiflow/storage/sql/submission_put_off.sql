-- 10 s, doubled with each time, up to ten minutes: Airflow may have to be mended first.
update aiflow.submission set
    make_tries = make_tries + 1,
    make_after = clock_timestamp() + least(interval '10 seconds' * power(2, least(make_tries, 10)), interval '10 minutes')
where submission_id = %(submission_id)s and made_at is null and finished_at is null
returning submission_id
