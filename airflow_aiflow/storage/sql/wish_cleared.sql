-- Airflow has taken the clear: the wishes hold until the next attempt, whenever that starts.
update aiflow.wish w set cleared = true
from aiflow.execution x
where x.execution_id = any (%(execution_ids)s) and w.execution_id = x.execution_id and w.fence = x.fence
returning w.execution_id
