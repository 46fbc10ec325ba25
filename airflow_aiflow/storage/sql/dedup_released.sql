-- Whether a person has released an effect since our own ledger wrote it down. The minute is for clocks that differ.
select true from aiflow_dedup.released
where identity = %(identity)s and said_at > %(known_at)s::timestamptz - interval '1 minute'
limit 1
