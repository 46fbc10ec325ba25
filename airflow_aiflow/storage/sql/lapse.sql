-- The owner's process is dead, as its guard saw: nobody needs to wait for the rest of its lease.
update aiflow.lease set
    expires_at = least(expires_at, clock_timestamp() + make_interval(secs => %(left)s)),
    step_name = coalesce(%(step)s::text, step_name)
where execution_id = %(execution_id)s and fence = %(fence)s
returning true
