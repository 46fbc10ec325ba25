-- Refused where too many of the user's were announced and never used.
insert into aiflow.upload (upload_id, submitted_by, dag_id, sha256, size, media_type, name, expires_at)
select
    %(upload_id)s, %(user)s, %(dag_id)s, %(sha256)s, %(size)s, %(media_type)s, %(name)s,
    clock_timestamp() + make_interval(secs => %(link_s)s)
where (
    select count(*) from aiflow.upload u where u.submitted_by = %(user)s and u.checked_at is null
) < %(most)s
returning expires_at
