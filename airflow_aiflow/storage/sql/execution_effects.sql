-- The effects whose current intent an execution wrote, the first begun first. The view is asked from the side, for it
-- reads the clock.
select n.effect
from (select e.effect_id from aiflow.effect e where e.execution_id = %(execution_id)s order by e.effect_id limit %(limit)s) e
cross join lateral (
    select to_jsonb(n) as effect, n.intended_at from aiflow.effect_now n where n.effect_id = e.effect_id offset 0
) n
order by n.intended_at
