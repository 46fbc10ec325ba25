-- With which keys are the newest payloads encrypted? Of each table so many, by an index.
with newest as (
    (select s.result as data from aiflow.step s order by s.execution_id desc limit %(limit)s)
    union all
    (select i.request from aiflow.intent i order by i.number desc limit %(limit)s)
    union all
    (select i.result from aiflow.intent i order by i.number desc limit %(limit)s)
    union all
    (select x.result from aiflow.execution x order by x.execution_id desc limit %(limit)s)
)
select encode(substring(data from octet_length(%(magic)s) + 1 for %(size)s), 'hex') as key_id, count(*)
from newest
where substring(data from 1 for octet_length(%(magic)s)) = %(magic)s
group by key_id
order by key_id
