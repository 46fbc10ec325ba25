-- Airflow has refused the clear: nobody wished anything.
delete from aiflow.wish where execution_id = any (%(execution_ids)s) and not cleared returning execution_id
