-- Let each open mark of a run reach over all clears of ours that may come after the number that it saw, the one that is
-- about to be sent included: those of later batches, and of such earlier ones as reach beyond that number. Each `at`
-- stands for one batch. A statement of its own, after the mark's: of two marks at once the later one sees
-- both, and stretches the other's before its own clear is sent.
with open as materialized (
    select r.execution_id, r.fence, r.at, r.clear_number from aiflow.requeue r
    join aiflow.execution x on x.execution_id = r.execution_id and x.fence = r.fence
    where
        hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
        and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
        and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s and r.state in ('marked', 'cleared')
    order by r.execution_id
    for no key update of r
),
batches as materialized (
    select r.at, max(r.may_clear) as may_clear, max(r.clear_until) as until from aiflow.execution x
    join aiflow.requeue r on r.execution_id = x.execution_id
    where
        hashtextextended(x.dag_id, 0) = hashtextextended(%(dag_id)s, 0)
        and hashtextextended(x.run_id, 0) = hashtextextended(%(run_id)s, 0)
        and x.dag_id = %(dag_id)s and x.run_id = %(run_id)s and r.state <> 'void'
    group by r.at
)
update aiflow.requeue r set clear_until = far.until
from open o
cross join lateral (
    select o.clear_number + (sum(b.may_clear) filter (where b.at >= o.at or b.until > o.clear_number))::integer as until
    from batches b
) far
where r.execution_id = o.execution_id and r.fence = o.fence and r.clear_until < far.until
returning r.execution_id
