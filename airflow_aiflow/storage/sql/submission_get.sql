select
    submission_id, submitted_by, dag_id, run_id, key, "window", request_fp, input, labels, priority, state::text,
    created_at, deadline, coalesce(deadline <= clock_timestamp(), false), made_at is not null, refused,
    cancel_asked_at is not null, hold_asked_at is not null, finished_at
from aiflow.submission
where submission_id = %(submission_id)s
