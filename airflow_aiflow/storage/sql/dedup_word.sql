-- Who released what a try did, and when.
select said_by, said_at from aiflow_dedup.released where act = %(act)s
