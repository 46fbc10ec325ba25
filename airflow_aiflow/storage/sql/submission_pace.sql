-- Seconds until the next one is taken.
select greatest(
    extract(epoch from free_at - clock_timestamp())::double precision + %(step)s - %(burst)s, 0
)
from aiflow.submit_pace
where submitted_by = %(user)s
