-- Any number of steps and events in one commit; what is there already stays as it is.
with s as (
    insert into aiflow.step (
        execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256,
        seal, ended_at, duration_ms, model, response_id, tokens_in, tokens_out, cost
    )
    select %(execution_id)s, %(generation)s, t.*
    from unnest(
        %(step_key)s::bytea[], %(kind)s::text[], %(name)s::text[], %(unit)s::text[], %(fingerprint)s::bytea[],
        %(occurrence)s::integer[], %(step_fence)s::bigint[], %(result)s::bytea[], %(result_sha256)s::bytea[],
        %(seal)s::bytea[], %(ended_at)s::timestamptz[], %(duration_ms)s::double precision[], %(model)s::text[],
        %(response_id)s::text[], %(tokens_in)s::bigint[], %(tokens_out)s::bigint[], %(cost)s::numeric[]
    ) t
    on conflict do nothing
    returning step_key
),
e as (
    insert into aiflow.event (execution_id, fence, seq, kind, data)
    select x.execution_id, x.fence, %(first_seq)s + t.place - 1, t.kind, t.data
    from aiflow.execution x, unnest(%(event_kind)s::text[], %(event_data)s::bytea[])
        with ordinality t (kind, data, place)
    where x.execution_id = %(execution_id)s and x.fence = %(fence)s
    on conflict do nothing
)
select step_key from s
