-- An incident of what has no execution: a task that never started, a run in which nothing moves. After a day without a
-- find it counts as another one.
insert into aiflow.incident as i (
    identity, fence, dag_id, run_id, task_id, map_index, kind, basis, decision, why, report, look_again_at, detected_after
)
values (
    %(identity)s, 0, %(dag_id)s, %(run_id)s, %(task_id)s, %(map_index)s, %(kind)s, 'outside',
    %(decision)s::text::aiflow.incident_decision, %(why)s, %(report)s,
    clock_timestamp() + make_interval(secs => %(check_in)s), %(detected_after)s
)
on conflict (identity) do update set
    decision = case
        when excluded.decision = 'leave' and i.decided_at > clock_timestamp() - interval '1 day' then i.decision
        else excluded.decision
    end,
    why = excluded.why,
    report = excluded.report or (i.report and i.decided_at > clock_timestamp() - interval '1 day'),
    alerted_at = case when i.decided_at > clock_timestamp() - interval '1 day' then i.alerted_at end,
    found_at = case when i.decided_at > clock_timestamp() - interval '1 day' then i.found_at else clock_timestamp() end,
    decided_at = clock_timestamp(),
    look_again_at = excluded.look_again_at
where i.look_again_at <= clock_timestamp()
returning i.number, i.dag_id, i.run_id, i.task_id, i.map_index, i.fence, i.kind, i.decision::text, i.why,
    i.detected_after, i.alerted_at is not null
