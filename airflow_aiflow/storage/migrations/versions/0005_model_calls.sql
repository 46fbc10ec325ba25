-- Limits and budgets of model calls, over all workers.
--
-- Both are decided in functions and not in plain statements: the row of the limit, or of the budget, is locked first, and
-- only a statement that begins after that sees what whoever held the lock before has lent.

create domain aiflow.limit_name as text check (length(value) between 1 and 128);

create table aiflow.rate_limit (
    name aiflow.limit_name primary key,
    rpm bigint check (rpm >= 1),               -- null: any number; so with the two below
    tpm bigint check (tpm >= 1),
    concurrency integer check (concurrency >= 1),
    window_s double precision not null default 60 check (window_s > 0),
    changed_at timestamptz not null default clock_timestamp()
);

create table aiflow.limit_share (              -- hot and tiny: what each worker has of a limit
    name aiflow.limit_name not null references aiflow.rate_limit on delete cascade,
    worker uuid not null,
    requests bigint not null check (requests >= 0),
    tokens bigint not null check (tokens >= 0),
    slots integer not null check (slots >= 0),
    waiting integer not null,
    expires_at timestamptz not null,           -- until then the worker may spend it without asking
    primary key (name, worker)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table aiflow.limit_use (                -- hot and tiny: what was used, by the second, of one window
    name aiflow.limit_name not null references aiflow.rate_limit on delete cascade,
    second timestamptz not null,               -- rounded up, so that nothing is forgotten too early
    requests bigint not null,
    tokens bigint not null,
    primary key (name, second)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- How much of what is left of a limit a worker gets: at most what it wants, a fair part where others wait, never less
-- than what it keeps. Null, where nothing is limited.
create function aiflow.fair_part(want bigint, most bigint, taken bigint, keep bigint, workers bigint)
returns bigint language sql immutable as $$
    select case
        when most is null then null
        else least(want, greatest(ceil(f.free::numeric / workers)::bigint, least(keep, f.free)))
    end
    from (select greatest(most - taken, 0) as free) f
$$;

create function aiflow.exchange(
    in p_name text, in p_worker uuid, in p_ttl double precision,
    in p_used_requests bigint, in p_used_tokens bigint, in p_held_tokens bigint,
    in p_keep_requests bigint, in p_keep_tokens bigint, in p_want_requests bigint, in p_want_tokens bigint,
    in p_in_flight integer, in p_want_slots integer, in p_waiting integer,
    out rpm bigint, out tpm bigint, out concurrency integer,
    out requests bigint, out tokens bigint, out slots integer, out others_wait boolean
)
returns setof record language plpgsql as $$
#variable_conflict use_column
declare
    l aiflow.rate_limit;
    t timestamptz;
    w interval;
    used record;
    others record;
    workers bigint;
begin
    select * into l from aiflow.rate_limit r where r.name = p_name for no key update;
    if not found then
        return;
    end if;
    t := clock_timestamp();
    w := make_interval(secs => l.window_s);
    if p_used_requests <> 0 or p_used_tokens <> 0 then
        insert into aiflow.limit_use as u (name, second, requests, tokens)
        values (p_name, date_trunc('second', t) + interval '1 second', p_used_requests, p_used_tokens)
        on conflict (name, second) do update
        set requests = u.requests + excluded.requests, tokens = u.tokens + excluded.tokens;
    end if;
    delete from aiflow.limit_use u where u.name = p_name and u.second <= t - w;
    -- A worker that is gone may have spent its share up to the share's end, so it counts for one window more.
    delete from aiflow.limit_share s where s.name = p_name and s.expires_at <= t - w;
    select coalesce(sum(u.requests), 0)::bigint as requests, coalesce(sum(u.tokens), 0)::bigint as tokens
    into used from aiflow.limit_use u where u.name = p_name;
    select
        coalesce(sum(s.requests), 0)::bigint as requests, coalesce(sum(s.tokens), 0)::bigint as tokens,
        coalesce(sum(s.slots) filter (where s.expires_at > t), 0)::integer as slots,
        count(*) filter (where s.expires_at > t and s.waiting > 0) as waiting
    into others from aiflow.limit_share s where s.name = p_name and s.worker <> p_worker;
    workers := others.waiting + 1;
    rpm := l.rpm;
    tpm := l.tpm;
    concurrency := l.concurrency;
    requests := aiflow.fair_part(
        p_want_requests, l.rpm, used.requests + others.requests, p_keep_requests, workers);
    tokens := aiflow.fair_part(
        p_want_tokens, l.tpm, used.tokens + others.tokens + p_held_tokens, p_keep_tokens, workers);
    slots := p_in_flight + aiflow.fair_part(
        p_want_slots - p_in_flight, l.concurrency, others.slots + p_in_flight, 0, workers);
    others_wait := others.waiting > 0;
    if p_held_tokens + p_in_flight + p_waiting + coalesce(requests, 0) + coalesce(tokens, 0) > 0 then
        insert into aiflow.limit_share as s (name, worker, requests, tokens, slots, waiting, expires_at)
        values (
            p_name, p_worker, coalesce(requests, 0), p_held_tokens + coalesce(tokens, 0),
            coalesce(slots, p_in_flight), p_waiting, t + make_interval(secs => p_ttl)
        )
        on conflict (name, worker) do update
        set requests = excluded.requests, tokens = excluded.tokens, slots = excluded.slots,
            waiting = excluded.waiting, expires_at = excluded.expires_at;
    else
        delete from aiflow.limit_share s where s.name = p_name and s.worker = p_worker;
    end if;
    return next;
end
$$;

create table aiflow.budget (
    budget_id bigint generated always as identity primary key,
    identity aiflow.sha256 not null unique,    -- of the four columns below
    dag_id text not null,
    run_id text not null,
    task_id text not null,
    name text not null,                        -- of the map of prompts; empty: the task's
    cost numeric not null,                     -- US dollars that are spent, those below included
    tokens bigint not null,
    unknown_cost numeric not null default 0,   -- held for calls whose outcome nobody knows
    unknown_tokens bigint not null default 0,
    created_at timestamptz not null default clock_timestamp()
) with (fillfactor = 70);

create table aiflow.budget_hold (              -- one a call at work
    hold_id uuid primary key,
    budget_id bigint not null references aiflow.budget,
    execution_id bigint not null,
    generation aiflow.ordinal not null,
    fence bigint not null,
    step_key bytea not null,
    cost numeric not null,
    tokens bigint not null,
    until timestamptz not null                 -- the call has surely ended by then
);

create index budget_hold_budget on aiflow.budget_hold (budget_id);

create function aiflow.hold_budget(
    in p_identity bytea, in p_dag_id text, in p_run_id text, in p_task_id text, in p_name text,
    in p_hold_id uuid, in p_execution_id bigint, in p_generation integer, in p_fence bigint, in p_step_key bytea,
    in p_cost numeric, in p_tokens bigint, in p_seconds double precision,
    in p_most_cost numeric, in p_most_tokens bigint,
    out granted boolean, out cost numeric, out tokens bigint, out unknown_cost numeric, out unknown_tokens bigint,
    out open_cost numeric, out open_tokens bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    b aiflow.budget;
    gone record;
begin
    if not exists (select from aiflow.budget where identity = p_identity) then
        insert into aiflow.budget (identity, dag_id, run_id, task_id, name, cost, tokens)
        select
            p_identity, p_dag_id, p_run_id, p_task_id, p_name,
            coalesce(sum(s.cost), 0), coalesce(sum(s.tokens_in + s.tokens_out), 0)::bigint
        from aiflow.execution x join aiflow.step s using (execution_id)
        where
            hashtextextended(x.dag_id, 0) = hashtextextended(p_dag_id, 0)
            and hashtextextended(x.run_id, 0) = hashtextextended(p_run_id, 0)
            and hashtextextended(x.task_id, 0) = hashtextextended(p_task_id, 0)
            and x.dag_id = p_dag_id and x.run_id = p_run_id and x.task_id = p_task_id
            and (p_name = '' or s.name = p_name)
        on conflict (identity) do nothing;
    end if;
    select * into strict b from aiflow.budget where identity = p_identity for no key update;
    -- What a caller left behind that is gone: what its step recorded, else the estimate.
    with h as (
        delete from aiflow.budget_hold h
        where
            h.budget_id = b.budget_id
            and (h.until <= clock_timestamp() or (h.execution_id = p_execution_id and h.fence < p_fence))
        returning h.*
    ),
    found as (
        select
            s.step_key is null as unknown, coalesce(s.cost, h.cost) as cost,
            coalesce(s.tokens_in + s.tokens_out, h.tokens) as tokens
        from h left join aiflow.step s
            on s.execution_id = h.execution_id and s.generation = h.generation and s.step_key = h.step_key
            and s.fence = h.fence
    )
    select
        coalesce(sum(f.cost), 0) as cost, coalesce(sum(f.tokens), 0)::bigint as tokens,
        coalesce(sum(f.cost) filter (where f.unknown), 0) as unknown_cost,
        coalesce(sum(f.tokens) filter (where f.unknown), 0)::bigint as unknown_tokens,
        count(*) as number
    into gone from found f;
    if gone.number > 0 then
        update aiflow.budget set
            cost = cost + gone.cost, tokens = tokens + gone.tokens,
            unknown_cost = unknown_cost + gone.unknown_cost, unknown_tokens = unknown_tokens + gone.unknown_tokens
        where budget_id = b.budget_id
        returning * into b;
    end if;
    select coalesce(sum(h.cost), 0), coalesce(sum(h.tokens), 0)::bigint into open_cost, open_tokens
    from aiflow.budget_hold h where h.budget_id = b.budget_id and h.hold_id <> p_hold_id;
    cost := b.cost;
    tokens := b.tokens;
    unknown_cost := b.unknown_cost;
    unknown_tokens := b.unknown_tokens;
    granted := coalesce(cost + open_cost + p_cost <= p_most_cost, true)
        and coalesce(tokens + open_tokens + p_tokens <= p_most_tokens, true);
    if granted then
        insert into aiflow.budget_hold (
            hold_id, budget_id, execution_id, generation, fence, step_key, cost, tokens, until
        )
        values (
            p_hold_id, b.budget_id, p_execution_id, p_generation, p_fence, p_step_key, p_cost, p_tokens,
            clock_timestamp() + make_interval(secs => p_seconds)
        )
        on conflict (hold_id) do nothing;
    end if;
end
$$;

create table aiflow.wasted_call (              -- append only: paid, and no result is recorded for it
    call_id uuid primary key,
    execution_id bigint not null,
    generation aiflow.ordinal not null,
    fence bigint not null,
    at timestamptz not null default clock_timestamp(),
    name text not null,
    model text,
    tokens_in bigint not null,
    tokens_out bigint not null,
    cost numeric                               -- null: no price is known
);

create index wasted_call_execution on aiflow.wasted_call (execution_id, generation);
create index wasted_call_at on aiflow.wasted_call using brin (at) with (autosummarize = on);  -- for dashboards

-- How long a task has waited, over its reschedules, for a model that answers "not now".
create table aiflow.model_wait (
    execution_id bigint primary key,
    number integer not null,                   -- of the attempt
    since timestamptz not null
);
