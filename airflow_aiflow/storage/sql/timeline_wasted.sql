-- Model calls of a generation that were paid and gave nothing to record.
select
    count(*)::integer, coalesce(sum(w.cost), 0), (count(*) filter (where w.cost is null))::integer,
    coalesce(sum(w.tokens_in), 0)::bigint, coalesce(sum(w.tokens_out), 0)::bigint
from aiflow.wasted_call w
where w.execution_id = %(execution_id)s and w.generation = %(generation)s
