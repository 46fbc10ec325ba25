-- The ledger's clock: ages are told by it, not by the machine of who cleans.
select clock_timestamp()
