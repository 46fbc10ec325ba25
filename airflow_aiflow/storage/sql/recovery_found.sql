-- One incident a fence. What was done stands against a later "leave", and why it was done stands against a pass that goes on
-- where another one was broken off: by then Airflow says what we told it. A quarantine is told also where less was told
-- before. An execution's earlier incidents that nobody was to hear of go away: else each pause would leave one for ever.
with gone as (
    delete from aiflow.incident o
    where o.execution_id = %(execution_id)s and o.fence < %(fence)s and o.decision = 'leave' and not o.report
)
insert into aiflow.incident as i (
    execution_id, fence, dag_id, run_id, task_id, map_index, kind, basis, decision, why, report, look_again_at,
    detected_after, evidence
)
values (
    %(execution_id)s, %(fence)s, %(dag_id)s, %(run_id)s, %(task_id)s, %(map_index)s, %(kind)s,
    %(basis)s::text::aiflow.stall_basis, %(decision)s::text::aiflow.incident_decision, %(why)s, %(report)s,
    clock_timestamp() + make_interval(secs => %(check_in)s), %(detected_after)s, %(evidence)s
)
on conflict (execution_id, fence) do update set
    kind = case
        when (excluded.decision = 'leave' or %(goes_on)s) and i.decision <> 'leave' then i.kind else excluded.kind
    end,
    decision = case when excluded.decision = 'leave' then i.decision else excluded.decision end,
    why = case
        when (excluded.decision = 'leave' or %(goes_on)s) and i.decision <> 'leave' then i.why else excluded.why
    end,
    basis = excluded.basis,
    basis_at = case when i.basis = excluded.basis then i.basis_at else clock_timestamp() end,
    detected_after = case when i.basis = excluded.basis then i.detected_after else excluded.detected_after end,
    report = i.report or excluded.report,
    decided_at = clock_timestamp(),
    -- What does not change is looked at ever more seldom, where that is allowed.
    look_again_at = clock_timestamp() + make_interval(secs => least(
        greatest(%(check_in)s, %(slower)s * extract(epoch from clock_timestamp() - i.basis_at)::double precision),
        greatest(%(check_in)s, %(slowest)s)
    )),
    alerted_at = case when excluded.decision <> 'quarantine' or i.decision = 'quarantine' then i.alerted_at end,
    evidence = case
        when (excluded.decision = 'leave' or %(goes_on)s) and i.decision <> 'leave' then i.evidence else excluded.evidence
    end
returning i.number, i.dag_id, i.run_id, i.task_id, i.map_index, i.fence, i.kind, i.decision::text, i.why,
    i.detected_after, i.alerted_at is not null
