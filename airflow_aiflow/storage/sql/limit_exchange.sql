-- Take what a worker has used of a limit, and lend it what is free. No row: there is no such limit.
select rpm, tpm, concurrency, requests, tokens, slots, others_wait
from aiflow.exchange(
    %(name)s, %(worker)s, %(ttl)s, %(used_requests)s, %(used_tokens)s, %(held_tokens)s, %(keep_requests)s,
    %(keep_tokens)s, %(want_requests)s, %(want_tokens)s, %(in_flight)s, %(want_slots)s, %(waiting)s
)
