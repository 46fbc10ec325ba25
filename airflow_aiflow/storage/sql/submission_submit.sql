-- Unique first: of equal submits one row is written, whoever else comes at the same moment. No row: the key is in use.
insert into aiflow.submission (
    submission_id, identity, "window", submitted_by, dag_id, run_id, key, key_until, request_fp, input, labels, priority,
    deadline
)
select
    %(submission_id)s, %(identity)s, %(window)s, %(user)s, %(dag_id)s, %(run_id)s, %(key)s,
    clock_timestamp() + make_interval(secs => %(window_s)s), %(request_fp)s, %(input)s, %(labels)s, %(priority)s,
    %(deadline)s
on conflict (identity, "window") do nothing
returning submission_id
