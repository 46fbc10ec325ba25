-- The limits with what counts against each of them now.
select
    l.name, l.rpm, l.tpm, l.concurrency,
    (u.requests + s.requests)::bigint, (u.tokens + s.tokens)::bigint, s.slots, s.workers, s.waiting
from aiflow.rate_limit l
cross join lateral (
    select coalesce(sum(u.requests), 0) as requests, coalesce(sum(u.tokens), 0) as tokens
    from aiflow.limit_use u
    where u.name = l.name and u.second > statement_timestamp() - make_interval(secs => l.window_s)
) u
cross join lateral (
    select
        coalesce(sum(s.requests), 0) as requests, coalesce(sum(s.tokens), 0) as tokens,
        coalesce(sum(s.slots) filter (where s.expires_at > statement_timestamp()), 0)::integer as slots,
        (count(*) filter (where s.expires_at > statement_timestamp()))::integer as workers,
        coalesce(sum(s.waiting) filter (where s.expires_at > statement_timestamp()), 0)::integer as waiting
    from aiflow.limit_share s
    where s.name = l.name and s.expires_at > statement_timestamp() - make_interval(secs => l.window_s)
) s
order by l.name
