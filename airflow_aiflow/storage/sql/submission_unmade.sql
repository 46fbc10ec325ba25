-- Outbox rows without a run. Two who read the same row make the same run: its id follows from the key. What could not be
-- made comes later again, so that it does not stand before the others for ever.
select
    submission_id, submitted_by, dag_id, run_id, key, "window", request_fp, input, labels, priority, state::text,
    created_at, deadline, coalesce(deadline <= clock_timestamp(), false), made_at is not null, refused,
    extract(epoch from clock_timestamp() - cancel_asked_at)::double precision, hold_asked_at is not null, finished_at,
    retried_at is not null, callback_url
from aiflow.submission
where made_at is null and finished_at is null
    and (hold_asked_at is null or deadline <= statement_timestamp())
    and created_at <= clock_timestamp() - make_interval(secs => %(older_than)s)
    and (make_after is null or make_after <= clock_timestamp())
order by priority desc, created_at
limit %(limit)s
