-- Units of a map by their keys: its items, and the steps inside of those that are not recorded themselves.
select
    s.step_key, s.kind, s.name, s.unit, s.fence, s.ended_at, s.duration_ms, s.recorded_at, s.tokens_in, s.cost, a.started_at
from aiflow.step s
join aiflow.attempt a on a.execution_id = s.execution_id and a.fence = s.fence
where s.execution_id = %(execution_id)s and s.generation = %(generation)s and s.step_key > %(after)s
    and ((s.unit = '' and s.name = %(map)s and s.kind in ('item', 'llm')) or split_part(s.unit, '/', 1) = %(map)s)
order by s.step_key
limit %(limit)s
