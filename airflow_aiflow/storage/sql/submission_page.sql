-- The newest first: ids sort by time. Null: not asked for.
select
    submission_id, submitted_by, dag_id, run_id, key, "window", request_fp, input, labels, priority, state::text,
    created_at, deadline, coalesce(deadline <= clock_timestamp(), false), made_at is not null, refused,
    extract(epoch from clock_timestamp() - cancel_asked_at)::double precision, hold_asked_at is not null, finished_at,
    retried_at is not null, callback_url
from aiflow.submission
where
    (%(after)s::uuid is null or submission_id < %(after)s::uuid)
    and (%(users)s::text[] is null or submitted_by = any (%(users)s::text[]))
    and (%(dag_ids)s::text[] is null or dag_id = any (%(dag_ids)s::text[]))
    and (%(state)s::text is null or state = %(state)s::text::aiflow.submission_state)
    and (%(label)s::jsonb is null or labels @> %(label)s::jsonb)
    and (%(since)s::timestamptz is null or created_at >= %(since)s::timestamptz)
    and (%(until)s::timestamptz is null or created_at < %(until)s::timestamptz)
order by submission_id desc
limit %(limit)s
