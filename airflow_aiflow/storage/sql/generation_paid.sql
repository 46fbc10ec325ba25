-- What a generation has recorded.
select
    count(*)::integer, count(s.tokens_in)::integer, coalesce(sum(s.cost), 0),
    (count(*) filter (where s.tokens_in is not null and s.cost is null))::integer,
    coalesce(sum(s.tokens_in), 0)::bigint, coalesce(sum(s.tokens_out), 0)::bigint
from aiflow.step s
where s.execution_id = %(execution_id)s and s.generation = %(generation)s
