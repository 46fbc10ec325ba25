-- The steps of a generation that are shown one by one, in the order of time: what stands in no map. Many model calls of
-- one name are a map of prompts.
with s as materialized (
    select
        s.step_key, s.kind, s.name, s.unit, s.fence, s.ended_at, s.duration_ms, s.recorded_at, s.tokens_in, s.cost,
        a.started_at,
        s.kind = 'item' or (s.kind = 'llm' and count(*) over (partition by s.kind, s.name, s.unit) > %(fold)s) as folded
    from aiflow.step s
    join aiflow.attempt a on a.execution_id = s.execution_id and a.fence = s.fence
    where s.execution_id = %(execution_id)s and s.generation = %(generation)s
)
select
    s.step_key, s.kind, s.name, s.unit, s.fence, s.ended_at, s.duration_ms, s.recorded_at, s.tokens_in, s.cost, s.started_at
from s
where not s.folded and (s.unit = '' or exists (
    select from s o where o.unit = '' and not o.folded and o.name = split_part(s.unit, '/', 1)
))
order by s.recorded_at, s.step_key
limit %(limit)s
