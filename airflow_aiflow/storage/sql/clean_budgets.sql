-- As `clean_page`: budgets that are older than a moment.
with page as materialized (
    select
        b.budget_id, b.dag_id, b.run_id,
        b.created_at < %(before)s and (%(dag_ids)s::text[] is null or b.dag_id = any (%(dag_ids)s::text[])) as old
    from aiflow.budget b
    where b.budget_id > %(after)s
    order by b.budget_id
    limit %(most)s
)
select budget_id, dag_id, run_id, old from page
where old or budget_id = (select max(budget_id) from page)
order by budget_id
