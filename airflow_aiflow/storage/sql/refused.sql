-- How often the processes of this try before this one called an effect in vain: refused, or unknown and called again.
select count(*)::integer, min(i.intended_at)
from aiflow.effect e
join aiflow.intent i on i.effect_id = e.effect_id and i.execution_id = %(execution_id)s and i.repeat = e.repeat
join aiflow.attempt a on a.execution_id = i.execution_id and a.fence = i.fence
join aiflow.attempt mine on mine.execution_id = i.execution_id and mine.fence = %(fence)s
where e.identity = %(identity)s and a.number = mine.number and a.fence < mine.fence
    and (i.outcome = 'not_applied' or i.decision = 'retry')
