-- Equal ones are one row; that it was used is written once a day at most.
insert into aiflow.cursor_base as b (base_id, places) values (%(base_id)s, %(places)s)
on conflict (base_id) do update set used_at = clock_timestamp() where b.used_at < clock_timestamp() - interval '1 day'
returning true
