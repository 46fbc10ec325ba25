-- Delete submissions that are still as they were found. One whose run has an execution left stays: the next use of its
-- key must be another run, as the old one's effects are still known. So does one that somebody is still to be told of.
with due as materialized (
    select c.submission_id from aiflow.callback c where c.next_at is not null
),
gone as materialized (
    select s.submission_id from aiflow.submission s
    where s.submission_id = any (%(ids)s::uuid[])
        and s.finished_at < %(before)s and s.key_until <= clock_timestamp()
        and not exists (select from due where due.submission_id = s.submission_id)
        and not exists (
            select from aiflow.execution x
            where
                hashtextextended(x.dag_id, 0) = hashtextextended(s.dag_id, 0)
                and hashtextextended(x.run_id, 0) = hashtextextended(s.run_id, 0)
                and x.dag_id = s.dag_id and x.run_id = s.run_id
        )
    for update of s skip locked
)
delete from aiflow.submission t using gone where t.submission_id = gone.submission_id
returning t.submission_id
