-- Commit 2 of an effect; never refused, from any fence, in every state; the intent's first outcome stands. A late success
-- moves the effect (the world wins), and where a newer intent may have been applied too, or the effect was done by
-- another intent, a double is suspected. A late failure moves nothing but its own current intent.
with i as (
    update aiflow.intent set
        outcome = %(outcome)s, result = %(result)s, result_sha256 = %(result_sha256)s, seal = %(seal)s,
        settled_at = clock_timestamp()
    where intent_id = %(intent_id)s and outcome is null
    returning effect_id, no, repeat, outcome, decision is not distinct from 'happened' as confirms
)
update aiflow.effect e set
    state = case
        when i.outcome = 'succeeded' and i.repeat = e.repeat and e.state < 'succeeded' then 'succeeded'
        when i.outcome = 'not_applied' and i.no = e.intent_no and e.state < 'failed' then 'failed'
        else e.state
    end,
    succeeded_no = case
        when i.outcome = 'succeeded' and i.repeat = e.repeat and e.state < 'succeeded' then i.no
        else e.succeeded_no
    end,
    duplicate_suspected_at = case
        when e.duplicate_suspected_at is not null or i.outcome <> 'succeeded' then e.duplicate_suspected_at
        when i.repeat <> e.repeat or e.state >= 'succeeded'
            then case when i.confirms then null else clock_timestamp() end
        when e.state < 'failed' and i.no <> e.intent_no then clock_timestamp()
    end
from i
where e.effect_id = i.effect_id
returning e.state::text, e.duplicate_suspected_at is not null
