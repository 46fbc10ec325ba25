-- Unique first: of equal submits one row is written, whoever else comes at the same moment. No row: the key is in use, or
-- the user comes too fast; a user's row of the pace is locked, so that all servers count as one.
with pace as (
    insert into aiflow.submit_pace as p (submitted_by, free_at)
    select %(user)s, clock_timestamp() + make_interval(secs => %(step)s)
    where %(step)s::double precision is not null
    on conflict (submitted_by) do update set
        free_at = greatest(p.free_at, clock_timestamp()) + make_interval(secs => %(step)s)
    where greatest(p.free_at, clock_timestamp()) + make_interval(secs => %(step)s)
        <= clock_timestamp() + make_interval(secs => %(burst)s)
    returning true
)
insert into aiflow.submission (
    submission_id, identity, "window", submitted_by, dag_id, run_id, key, key_until, request_fp, input, labels, priority,
    deadline, callback_url
)
select
    %(submission_id)s, %(identity)s, %(window)s, %(user)s, %(dag_id)s, %(run_id)s, %(key)s,
    clock_timestamp() + make_interval(secs => %(window_s)s), %(request_fp)s, %(input)s, %(labels)s, %(priority)s,
    %(deadline)s, %(callback_url)s
where %(step)s::double precision is null or exists (select from pace)
on conflict (identity, "window") do nothing
returning submission_id
