-- Since when an attempt waits for a model; where it was served meanwhile, or is another attempt, since now.
insert into aiflow.model_wait as m (execution_id, number, since)
values (%(execution_id)s, %(number)s, clock_timestamp())
on conflict (execution_id) do update
set
    since = case when m.number = excluded.number and not %(served)s then m.since else excluded.since end,
    number = excluded.number
returning extract(epoch from clock_timestamp() - since)::double precision
