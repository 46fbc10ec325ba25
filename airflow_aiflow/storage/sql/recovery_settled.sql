-- Airflow has heard of a success: an incident about it ends so, and one that nobody was to hear of goes away. Where there
-- is none, none is made: a success is no incident.
with gone as (
    delete from aiflow.incident o
    where o.execution_id = %(execution_id)s and o.fence <= %(fence)s and o.decision = 'leave' and not o.report
)
update aiflow.incident i set
    decision = 'settle', why = %(why)s, decided_at = clock_timestamp(),
    look_again_at = clock_timestamp() + make_interval(secs => %(check_in)s)
where i.execution_id = %(execution_id)s and i.fence = %(fence)s and (i.decision <> 'leave' or i.report)
returning i.number, i.dag_id, i.run_id, i.task_id, i.map_index, i.fence, i.kind, i.decision::text, i.why,
    i.detected_after, i.alerted_at is not null
