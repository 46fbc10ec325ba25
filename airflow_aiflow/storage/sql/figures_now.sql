-- What is so now: counted in small tables and partial indexes, and there not beyond `most`.
select 'leases', case when expires_at > statement_timestamp() then 'live' else 'lapsed' end, count(*)
from aiflow.lease group by 2
union all
select 'executions', 'running', count(*)
from (select from aiflow.execution where state = 'running' limit %(most)s) x
union all
select 'executions', 'paused', count(*)
from (select from aiflow.execution where state = 'paused' limit %(most)s) x
union all
select 'unheard', '', count(*)
from (select from aiflow.execution where state = 'succeeded' and heard_at is null limit %(most)s) x
union all
select 'in_doubt', '', count(*) from (select from aiflow.effect where doubted limit %(most)s) e
union all
select 'questions', q.kind::text, count(*)
from (select kind from aiflow.question where answer is null limit %(most)s) q group by q.kind
