select e.state::text, e.duplicate_suspected_at is not null
from aiflow.intent i
join aiflow.effect e on e.effect_id = i.effect_id
where i.intent_id = %(intent_id)s
