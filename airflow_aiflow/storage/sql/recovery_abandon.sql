-- No attempt will come: put the open effects of an execution in doubt whose calls surely ended, so that the inbox shows
-- them. The execution's row is locked: an attempt that comes nevertheless finds them in doubt, and asks.
with held as materialized (
    select e.execution_id from aiflow.execution e
    where e.execution_id = %(execution_id)s and e.fence = %(fence)s
    for no key update
),
open as materialized (                         -- `offset 0`: by the execution, whatever the statistics say
    select o.effect_id, o.intent_no from aiflow.effect o, held h
    where o.execution_id = h.execution_id and o.state = 'intended'
    offset 0
)
update aiflow.effect e set state = 'in_doubt'
from open o
join aiflow.intent i on i.effect_id = o.effect_id and i.no = o.intent_no
join aiflow.attempt a on a.execution_id = i.execution_id and a.fence = i.fence
left join aiflow.lease l on l.execution_id = i.execution_id and l.fence = i.fence
left join aiflow.attempt following on following.execution_id = i.execution_id and following.fence = i.fence + 1
where e.effect_id = o.effect_id and e.intent_no = o.intent_no and e.state = 'intended'
    and (l.execution_id is null or l.expires_at <= clock_timestamp())
    and greatest(coalesce(l.expires_at, following.prior_lease_until, a.ended_at), i.intended_at)
        + make_interval(secs => i.timeout_s) <= clock_timestamp()
returning e.effect_id
