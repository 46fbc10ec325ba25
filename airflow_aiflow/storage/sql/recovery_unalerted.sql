-- What somebody should hear of and nobody was told, the oldest first.
select i.number, i.dag_id, i.run_id, i.task_id, i.map_index, i.fence, i.kind, i.decision::text, i.why, i.detected_after, false
from aiflow.incident i
where i.report and i.alerted_at is null
order by i.number
limit %(limit)s
