-- The guard's heartbeat: the process lives; of its progress nothing is known. Never for an attempt that has ended.
update aiflow.lease set expires_at = clock_timestamp() + make_interval(secs => %(ttl)s)
where execution_id = %(execution_id)s and fence = %(fence)s
returning true
