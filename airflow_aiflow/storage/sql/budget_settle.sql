-- Replace a hold by what the call cost. One that somebody took for lost meanwhile stays counted as it was. The budget's
-- row is locked first, as in `hold_budget`, so that the two never wait for each other.
with b as (
    select budget_id from aiflow.budget where identity = %(identity)s for no key update
),
h as (
    delete from aiflow.budget_hold
    where hold_id = %(hold_id)s and budget_id = (select budget_id from b)
    returning budget_id
)
update aiflow.budget t set
    cost = t.cost + %(cost)s, tokens = t.tokens + %(tokens)s,
    unknown_cost = t.unknown_cost + case when %(unknown)s then %(cost)s::numeric else 0 end,
    unknown_tokens = t.unknown_tokens + case when %(unknown)s then %(tokens)s::bigint else 0 end
from h
where t.budget_id = h.budget_id
returning t.budget_id
