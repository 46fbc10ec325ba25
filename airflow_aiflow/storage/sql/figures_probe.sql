-- A commit that nothing else waits for, to see how long one takes.
update aiflow.tally_mark set probed_at = clock_timestamp() returning probed_at
