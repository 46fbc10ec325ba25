-- Which database this is, and the form of its dedup table.
select store_id, version from aiflow_dedup.store
