-- The latest use of a key, and whether that use is over.
select "window", submission_id, key_until <= clock_timestamp() and finished_at is not null
from aiflow.submission
where identity = %(identity)s
order by "window" desc
limit 1
