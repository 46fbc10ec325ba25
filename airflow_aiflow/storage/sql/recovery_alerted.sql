-- These incidents were told.
update aiflow.incident i set alerted_at = clock_timestamp()
where i.number = any (%(numbers)s) and i.alerted_at is null
returning i.number
