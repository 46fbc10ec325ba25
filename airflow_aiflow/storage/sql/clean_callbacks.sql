-- Delete what was told of submissions that are gone, page by page along the primary key; gives the page's last.
with page as materialized (
    select c.callback_id, c.submission_id, c.next_at, c.created_at
    from aiflow.callback c
    where c.callback_id > %(after)s
    order by c.callback_id
    limit %(most)s
),
gone as (
    delete from aiflow.callback t using page p
    where t.callback_id = p.callback_id and p.next_at is null and p.created_at < %(before)s
        and not exists (select from aiflow.submission s where s.submission_id = p.submission_id)
    returning true
)
select (select p.callback_id from page p order by p.callback_id desc limit 1), (select count(*) from gone)
