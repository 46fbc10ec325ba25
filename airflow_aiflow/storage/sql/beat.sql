-- Lapsed or not: as long as nobody took over, the lease is ours to renew.
update aiflow.lease set
    expires_at = clock_timestamp() + make_interval(secs => %(ttl)s),
    progress_at = greatest(progress_at, clock_timestamp() - make_interval(secs => %(idle)s)),
    step_name = %(step_name)s,
    step_timeout = %(step_timeout)s
where execution_id = %(execution_id)s and fence = %(fence)s
returning wanted_by is not null, (             -- what a person wishes of the run; a cancel stands until a retry
    select case when s.cancel_asked_at is not null then 'cancel' when s.hold_asked_at is not null then 'hold' end
    from aiflow.execution e, aiflow.submission s
    where e.execution_id = %(execution_id)s
        and hashtextextended(s.dag_id, 0) = hashtextextended(e.dag_id, 0)
        and hashtextextended(s.run_id, 0) = hashtextextended(e.run_id, 0)
        and s.dag_id = e.dag_id and s.run_id = e.run_id and (s.finished_at is null or s.state = 'cancelled')
)
