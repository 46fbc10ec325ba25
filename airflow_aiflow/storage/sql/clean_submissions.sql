-- As `clean_page`: submissions that ended before a moment and whose key is free, of whose run no execution is left. The
-- id is all zeros before the first.
with page as materialized (
    select s.submission_id, s.dag_id, s.run_id, s.state, s.finished_at, s.key_until, s.made_at, s.make_after
    from aiflow.submission s
    where s.submission_id > %(after)s
    order by s.submission_id
    limit %(most)s
),
last as materialized (
    select p.submission_id from page p order by p.submission_id desc limit 1
)
select p.submission_id, p.dag_id, p.run_id, o.old
from page p
cross join lateral (
    select
        p.finished_at < %(before)s::timestamptz and p.key_until <= clock_timestamp()
        and (%(dag_ids)s::text[] is null or p.dag_id = any (%(dag_ids)s::text[]))
        and not (p.state = 'cancelled' and p.made_at is null and p.make_after is null)    -- a run may come up
        as old
) o
where o.old or p.submission_id = (select last.submission_id from last)
order by p.submission_id
