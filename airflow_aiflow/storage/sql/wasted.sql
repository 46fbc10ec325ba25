-- What calls of a generation cost that gave nothing to record, in attempts before a fence.
select
    count(*)::integer, coalesce(sum(tokens_in), 0)::bigint, coalesce(sum(tokens_out), 0)::bigint,
    coalesce(sum(cost), 0), (count(*) filter (where cost is null))::integer
from aiflow.wasted_call
where execution_id = %(execution_id)s and generation = %(generation)s and fence < %(fence)s
