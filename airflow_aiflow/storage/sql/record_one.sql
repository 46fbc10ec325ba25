-- The common case, one step and its event in one commit, without a thought for conflicts: where the step or the event is
-- there already, this is refused as a whole, and `record_many` is asked instead. The step counts from any fence: a paid
-- result is kept. The event needs the current fence, without a lock: one that slips through at a take-over still bears
-- its own fence.
with e as (
    insert into aiflow.event (execution_id, fence, seq, kind, data)
    select execution_id, fence, %(first_seq)s, %(event_kind)s, %(event_data)s from aiflow.execution
    where execution_id = %(execution_id)s and fence = %(fence)s
)
insert into aiflow.step (
    execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result, result_sha256, seal,
    ended_at, duration_ms, model, response_id, tokens_in, tokens_out, cost, prints, arguments
)
values (
    %(execution_id)s, %(generation)s, %(step_key)s, %(kind)s, %(name)s, %(unit)s, %(fingerprint)s, %(occurrence)s,
    %(step_fence)s, %(result)s, %(result_sha256)s, %(seal)s, %(ended_at)s, %(duration_ms)s, %(model)s, %(response_id)s,
    %(tokens_in)s, %(tokens_out)s, %(cost)s, %(prints)s, %(arguments)s
)
returning step_key
