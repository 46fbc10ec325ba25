-- Whoever takes them has until their back-off to say how it went: 30 s, doubled with each try, up to an hour.
with due as materialized (
    select c.callback_id from aiflow.callback c
    where c.next_at <= clock_timestamp()
    order by c.next_at
    limit %(limit)s
    for update of c skip locked
)
update aiflow.callback c set
    tries = c.tries + 1,
    next_at = clock_timestamp() + least(interval '30 seconds' * power(2, least(c.tries, 10)), interval '1 hour')
from due, aiflow.submission s
where c.callback_id = due.callback_id and s.submission_id = c.submission_id
returning c.callback_id, c.submission_id, s.dag_id, c.state::text, c.url, c.tries, c.created_at
