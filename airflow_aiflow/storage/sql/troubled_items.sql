select step_key, name, number, item_key, state::text, failures, kills, error, fence, at
from aiflow.failed_item
where execution_id = %(execution_id)s and generation = %(generation)s
