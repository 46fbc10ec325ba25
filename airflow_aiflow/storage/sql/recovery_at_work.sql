-- The owners of live leases in one pid namespace of one machine.
select l.execution_id, l.fence, a.owner
from aiflow.lease l
cross join lateral (                           -- `offset 0`: by the lease, whatever the statistics say
    select o.owner from aiflow.attempt o where o.execution_id = l.execution_id and o.fence = l.fence offset 0
) a
where l.expires_at > statement_timestamp()
    and a.owner ->> 'boot_id' = %(boot_id)s and (a.owner ->> 'pid_namespace')::bigint = %(pid_namespace)s
