-- Lapsed or not: as long as nobody took over, the lease is ours to renew.
update aiflow.lease set
    expires_at = clock_timestamp() + make_interval(secs => %(ttl)s),
    progress_at = greatest(progress_at, clock_timestamp() - make_interval(secs => %(idle)s)),
    step_name = %(step_name)s,
    step_timeout = %(step_timeout)s
where execution_id = %(execution_id)s and fence = %(fence)s
returning wanted_by is not null
