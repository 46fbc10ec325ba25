-- The running totals, and how far behind they are.
select t.name, t.label, t.value::double precision from aiflow.tally t
union all
select 'behind', '', extract(epoch from statement_timestamp() - m.upto)::double precision from aiflow.tally_mark m
