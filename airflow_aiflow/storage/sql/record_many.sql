-- Any number of steps and events in one commit; what is there already stays as it is. Arrays go in binary form: as text,
-- which is the driver's way with them, a thousand hashes cost it ten times as long. A shorter array is filled up with
-- nulls: what all rows have in common comes once beside it.
with s as (
    insert into aiflow.step (
        execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256,
        seal, ended_at, duration_ms, model, response_id, tokens_in, tokens_out, cost, prints, arguments
    )
    select
        %(execution_id)s, %(generation)s, t.step_key, coalesce(t.kind, %(kind_of_all)s), coalesce(t.name, %(name_of_all)s),
        coalesce(t.unit, %(unit_of_all)s), t.fingerprint, coalesce(t.occurrence, %(occurrence_of_all)s),
        coalesce(t.fence, %(step_fence_of_all)s), t.result, t.result_sha256, t.seal, t.ended_at, t.duration_ms, t.model,
        t.response_id, t.tokens_in, t.tokens_out, t.cost, t.prints, t.arguments
    from unnest(
        %(step_key)b::bytea[], %(kind)b::text[], %(name)b::text[], %(unit)b::text[], %(fingerprint)b::bytea[],
        %(occurrence)b::integer[], %(step_fence)b::bigint[], %(result)b::bytea[], %(result_sha256)b::bytea[],
        %(seal)b::bytea[], %(ended_at)b::timestamptz[], %(duration_ms)b::double precision[], %(model)b::text[],
        %(response_id)b::text[], %(tokens_in)b::bigint[], %(tokens_out)b::bigint[], %(cost)b::numeric[],
        %(prints)b::bytea[], %(arguments)b::bytea[]
    ) t (
        step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256, seal, ended_at, duration_ms,
        model, response_id, tokens_in, tokens_out, cost, prints, arguments
    )
    on conflict do nothing
    returning step_key
),
r as (                                         -- of what was written, what other runs may look for
    insert into aiflow.reuse (reuse_key, execution_id, generation, step_key)
    select t.reuse_key, %(execution_id)s, %(generation)s, t.step_key
    from unnest(%(reuse_key)b::bigint[], %(reusable)b::bytea[]) t (reuse_key, step_key)
    join s on s.step_key = t.step_key
),
e as (
    insert into aiflow.event (execution_id, fence, seq, kind, data)
    select x.execution_id, x.fence, %(first_seq)s + t.place - 1, t.kind, t.data
    from aiflow.execution x, unnest(%(event_kind)b::text[], %(event_data)b::bytea[])
        with ordinality t (kind, data, place)
    where x.execution_id = %(execution_id)s and x.fence = %(fence)s
    on conflict do nothing
),
d as (                                         -- what the events stand in place of, and the like of dead attempts
    delete from aiflow.event o
    where cardinality(%(replaced)b::bigint[]) > 0 and o.execution_id = %(execution_id)s
    and (o.fence = %(fence)s and o.seq = any (%(replaced)b::bigint[]) or o.fence < %(fence)s and o.kind = 'llm.delta')
    and exists (select from aiflow.execution x where x.execution_id = %(execution_id)s and x.fence = %(fence)s)
)
select step_key from s
