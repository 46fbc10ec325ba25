-- How many effects are in doubt.
select count(*) from aiflow.effect where doubted
