-- What the records had cost that are looked for by these keys, the newest that was paid for of each.
select w.place, s.cost, s.execution_id, x.run_id, s.ended_at
from unnest(%(reuse_keys)b::bigint[], %(fingerprints)b::bytea[]) with ordinality w (reuse_key, fingerprint, place)
cross join lateral (
    select s.cost, s.execution_id, s.ended_at
    from aiflow.reuse r
    join aiflow.step s
        on s.execution_id = r.execution_id and s.generation = r.generation and s.step_key = r.step_key
    where r.reuse_key = w.reuse_key and s.fingerprint = w.fingerprint and s.tokens_in is not null
    order by r.recorded_at desc
    limit 1
) s
join aiflow.execution x on x.execution_id = s.execution_id
