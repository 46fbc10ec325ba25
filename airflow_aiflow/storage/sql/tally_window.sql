-- What the tally has still to take in. Half a minute is left for commits on their way: a row bears the time at which it
-- was written, and is seen when it is committed. After a long time without a scrape, some hours at once; never across
-- midnight (UTC), so that what is taken in belongs to one day.
select upto, greatest(upto, least(
    statement_timestamp() - interval '30 seconds', upto + interval '6 hours',
    (date_trunc('day', upto at time zone 'UTC') + interval '1 day') at time zone 'UTC'
))
from aiflow.tally_mark
