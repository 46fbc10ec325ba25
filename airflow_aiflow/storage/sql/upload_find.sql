-- What was not checked can be used as long as its link works.
select upload_id, submitted_by, dag_id, sha256, size, media_type, name, expires_at, checked_at is not null
from aiflow.upload
where upload_id = %(upload_id)s and submitted_by = %(user)s
    and (checked_at is not null or expires_at > clock_timestamp())
