-- Cancelled before their run was made. Whoever made it, and was killed before it said so, has done so by now.
select
    submission_id, submitted_by, dag_id, run_id, key, "window", request_fp, input, labels, priority, state::text,
    created_at, deadline, coalesce(deadline <= clock_timestamp(), false), made_at is not null, refused,
    extract(epoch from clock_timestamp() - cancel_asked_at)::double precision, hold_asked_at is not null, finished_at,
    retried_at is not null, callback_url
from aiflow.submission
where state = 'cancelled' and made_at is null and make_after is null
    and finished_at <= clock_timestamp() - make_interval(secs => %(older_than)s)
order by finished_at
limit %(limit)s
