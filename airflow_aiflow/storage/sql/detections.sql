-- How long the latest stalls of some days were not seen, by DAG.
select i.dag_id, i.detected_after
from (select * from aiflow.incident order by number desc limit %(limit)s) i
where i.found_at > statement_timestamp() - make_interval(days => %(days)s::integer)
    and i.decision in ('requeue', 'quarantine')
