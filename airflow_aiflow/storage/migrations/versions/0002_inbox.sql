-- The inbox, and what a clear looks up. Nothing that the code of 0001 writes or reads is taken away: what it does not
-- know has a default, is null, or is generated.
--
-- Not covered: the new columns rewrite `intent`, `effect` and `execution` once, and their indexes are built inside the
-- transaction: some seconds for a million rows, in which tasks wait. Nothing but a ledger of 0001 pays that.

-- Intents and questions draw from one series, so that "#1842" names one thing.
create sequence aiflow.inbox_number as bigint;

alter table aiflow.intent
    add column number bigint not null default nextval('aiflow.inbox_number'),
    add column given bytea,                    -- the result that came with a decision: it stands, whatever comes late
    add column given_sha256 aiflow.sha256,
    add column given_seal bytea,               -- null: a person's word
    drop constraint intent_check3,             -- said again below, in one: each CHECK is compiled for each statement
    add constraint intent_check3 check (case
        when decision is null then num_nonnulls(decided_at, given, given_sha256) = 0
        else decided_at is not null and num_nonnulls(given, given_sha256) <= (decision = 'happened')::integer
    end);
create unique index intent_number on aiflow.intent (number);

-- Generated, so that it is right whoever writes; null but for the few, so that the moves intended -> succeeded | failed
-- change no indexed column and stay HOT.
alter table aiflow.effect
    add column doubted boolean generated always as (case when state = 'in_doubt' then true end) stored;
create index effect_doubted on aiflow.effect (effect_id) where doubted;
create index effect_key on aiflow.effect (hashtextextended(key, 0));

alter table aiflow.execution
    add column pause_reason text,              -- of the last pause: read it only where the state is 'paused'
    add column stopped boolean generated always as (case when state in ('paused', 'failed', 'cancelled') then true end) stored;
create index execution_stopped on aiflow.execution (execution_id) where stopped;
-- Hashes, since three ids may not fit an index entry; whoever finds a row here compares the ids as well.
create index execution_task on aiflow.execution
    (hashtextextended(dag_id, 0), hashtextextended(run_id, 0), hashtextextended(task_id, 0));

alter table aiflow.step add column prints bytea;

create type aiflow.question_kind as enum ('doubt', 'approval', 'conflict', 'ask');
create type aiflow.word_kind as enum ('resolved', 'released');

create table aiflow.question (
    number bigint primary key default nextval('aiflow.inbox_number'),
    identity aiflow.sha256 not null unique,    -- what an answer is valid for
    kind aiflow.question_kind not null,
    name text not null,
    namespace text,
    effect_name text,
    key aiflow.business_key,
    intent_id uuid references aiflow.intent,
    execution_id bigint not null references aiflow.execution,  -- that asked last
    subject text not null,
    body text not null,
    options text[] not null,
    assigned_users text[] not null,
    asked_at timestamptz not null default clock_timestamp(),
    asked_again_at timestamptz,
    expires_at timestamptz,
    answer text,
    answered_by text,
    answered_at timestamptz,
    note text,
    check (num_nonnulls(namespace, effect_name, key) in (0, 3)),
    check (kind not in ('doubt', 'conflict') or intent_id is not null),
    check (kind = 'ask' or key is not null),
    check (cardinality(options) >= 1),
    check (num_nonnulls(answer, answered_by, answered_at, note) in (0, 4)),
    check (answer is null or answer = any (options)),
    check (answered_by <> '')
);
create index question_open on aiflow.question (number) where answer is null;
create index question_intent on aiflow.question (intent_id) where intent_id is not null;

create table aiflow.word (                     -- what persons said about intents, and counted
    number bigint not null references aiflow.intent (number),
    kind aiflow.word_kind not null,
    said_by text not null check (said_by <> ''),
    said_at timestamptz not null default clock_timestamp(),
    note text not null,
    primary key (number, kind)
);

-- As in 0001, with what the inbox needs at its end.
create or replace view aiflow.effect_now as
select
    e.effect_id, e.namespace, e.name, e.key, e.state, e.repeat, e.intent_no,
    i.intent_id, i.request, i.request_sha256, i.request_fp,
    case when num_nonnulls(i.given, i.given_sha256) = 0 then i.result else i.given end as result,
    (case when num_nonnulls(i.given, i.given_sha256) = 0 then i.result_sha256 else i.given_sha256 end)::aiflow.sha256
        as result_sha256,
    case when num_nonnulls(i.given, i.given_sha256) = 0 then i.seal else i.given_seal end as seal,
    x.dag_id, x.run_id, x.task_id, x.map_index,
    i.execution_id, i.fence, i.generation, a.number, a.owner, i.intended_at, i.settled_at,
    coalesce(l.expires_at > clock_timestamp(), false) as live,
    extract(epoch from
        greatest(coalesce(l.expires_at, following.prior_lease_until, a.ended_at), i.intended_at)
        + make_interval(secs => i.timeout_s) - clock_timestamp()
    )::double precision as gone_in,
    e.duplicate_suspected_at is not null as duplicate_suspected,
    e.identity, e.execution_id as current_execution_id,
    i.number as intent_number, i.decision, i.decided_by, i.decided_at, i.no,
    extract(epoch from clock_timestamp() - case
        when i.no = 1 then i.intended_at
        else (
            select first.intended_at from aiflow.intent first
            where first.effect_id = e.effect_id and first.repeat = e.repeat
            order by first.no
            limit 1
        )
    end)::double precision as age,
    case when e.succeeded_no is not null then
        extract(epoch from clock_timestamp()
            - least(i.settled_at, case when i.decision = 'happened' then i.decided_at end))::double precision
    end as done_for
from aiflow.effect e
join aiflow.intent i on i.effect_id = e.effect_id and i.no = coalesce(e.succeeded_no, e.intent_no)
join aiflow.execution x on x.execution_id = i.execution_id
join aiflow.attempt a on a.execution_id = i.execution_id and a.fence = i.fence
left join aiflow.lease l on l.execution_id = i.execution_id and l.fence = i.fence
left join aiflow.attempt following on following.execution_id = i.execution_id and following.fence = i.fence + 1;

create view aiflow.question_now as
select
    q.number, q.kind, q.name, q.namespace, q.effect_name, q.key, q.intent_id,
    x.dag_id, x.run_id, x.task_id, x.map_index,
    q.subject, q.body, q.options, q.assigned_users, q.asked_at,
    extract(epoch from q.expires_at - clock_timestamp())::double precision as time_left,
    q.answer, q.answered_by, q.answered_at, q.note, q.identity
from aiflow.question q
join aiflow.execution x on x.execution_id = q.execution_id;
