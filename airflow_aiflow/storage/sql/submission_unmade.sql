-- Outbox rows without a run. Two who read the same row make the same run: its id follows from the key.
select
    submission_id, submitted_by, dag_id, run_id, key, "window", request_fp, input, labels, priority, state::text,
    created_at, deadline, coalesce(deadline <= clock_timestamp(), false), made_at is not null, refused,
    cancel_asked_at is not null, hold_asked_at is not null, finished_at
from aiflow.submission
where made_at is null and finished_at is null
    and created_at <= clock_timestamp() - make_interval(secs => %(older_than)s)
order by priority desc, created_at
limit %(limit)s
