-- Delete budgets of tasks of which nothing is left that was paid, and no call is at work.
with gone as materialized (
    select b.budget_id from aiflow.budget b
    where b.budget_id = any (%(ids)s::bigint[])
        and not exists (
            select from aiflow.budget_hold h where h.budget_id = b.budget_id and h.until > clock_timestamp()
        )
        and not exists (
            select from aiflow.execution x
            where
                hashtextextended(x.dag_id, 0) = hashtextextended(b.dag_id, 0)
                and hashtextextended(x.run_id, 0) = hashtextextended(b.run_id, 0)
                and hashtextextended(x.task_id, 0) = hashtextextended(b.task_id, 0)
                and x.dag_id = b.dag_id and x.run_id = b.run_id and x.task_id = b.task_id
                and (
                    x.finished_at is null or x.finished_at >= %(before)s::timestamptz
                    or exists (select from aiflow.step s where s.execution_id = x.execution_id)
                )
        )
    for update of b skip locked
),
hold as (
    delete from aiflow.budget_hold t using gone where t.budget_id = gone.budget_id returning true
)
delete from aiflow.budget t using gone where t.budget_id = gone.budget_id
returning t.budget_id
