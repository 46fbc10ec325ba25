-- Whose end somebody waits for without looking. One index each; the few that are cancelled come first. Of those with a
-- callback others are drawn each time, so that what runs for days keeps no other end untold; and what failed is
-- looked at for a day, for recovery or a person may bring it back.
with pressing as (
    (
        select submission_id, 1 as turn from aiflow.submission
        where cancel_asked_at is not null and finished_at is null and made_at is not null
        order by cancel_asked_at limit %(limit)s
    )
    union all
    (
        select submission_id, 2 from aiflow.submission
        where deadline <= statement_timestamp() and finished_at is null and made_at is not null
        order by deadline limit %(limit)s
    )
    union all
    (
        select submission_id, 3 from aiflow.submission
        where callback_url is not null and finished_at is null and made_at is not null
        order by random() limit %(limit)s
    )
    union all
    (
        select submission_id, 4 from aiflow.submission
        where callback_url is not null and state = 'failed' and made_at is not null
            and finished_at > statement_timestamp() - interval '1 day'
        order by random() limit %(limit)s
    )
),
once as (select submission_id, min(turn) as turn from pressing group by submission_id)
select
    s.submission_id, submitted_by, dag_id, run_id, key, "window", request_fp, input, labels, priority, state::text,
    created_at, deadline, coalesce(deadline <= clock_timestamp() and finished_at is null, false), made_at is not null,
    refused,
    extract(epoch from clock_timestamp() - cancel_asked_at)::double precision, hold_asked_at is not null, finished_at,
    retried_at is not null, callback_url
from aiflow.submission s join once using (submission_id)
order by turn, s.submission_id
