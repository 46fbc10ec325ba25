insert into aiflow.told (number) select distinct unnest(%(numbers)s::bigint[]) on conflict do nothing returning number
