insert into aiflow.rate_limit (name, rpm, tpm, concurrency)
values (%(name)s, %(rpm)s, %(tpm)s, %(concurrency)s)
on conflict (name) do update
set rpm = excluded.rpm, tpm = excluded.tpm, concurrency = excluded.concurrency, changed_at = clock_timestamp()
returning name
