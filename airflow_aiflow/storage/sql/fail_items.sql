-- Write down items that failed, or that are at work; a superseded attempt's word counts for less than its successor's.
insert into aiflow.failed_item (
    execution_id, generation, step_key, name, number, item_key, state, failures, kills, error, fence
)
select %(execution_id)s, %(generation)s, t.step_key, t.name, t.number, t.item_key, t.state::aiflow.item_state, t.failures,
    t.kills, t.error, %(fence)s
from unnest(
    %(step_keys)b::bytea[], %(names)b::text[], %(numbers)b::integer[], %(item_keys)b::text[], %(states)b::text[],
    %(failures)b::integer[], %(kills)b::integer[], %(errors)b::bytea[]
) t (step_key, name, number, item_key, state, failures, kills, error)
on conflict (execution_id, generation, step_key) do update set
    state = excluded.state, failures = excluded.failures, kills = excluded.kills, error = excluded.error,
    number = excluded.number, fence = excluded.fence, at = clock_timestamp()
where failed_item.fence <= excluded.fence
returning step_key
