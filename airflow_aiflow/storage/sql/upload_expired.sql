-- A while after their links: what is being put or checked at this moment is left alone.
select upload_id from aiflow.upload
where checked_at is null and expires_at <= clock_timestamp() - interval '1 hour'
order by expires_at
limit %(limit)s
