"""Fill a ledger with a long past and a busy present, as rows and not by running anything."""

from __future__ import annotations

from typing import Any

import psycopg

#: Rows of one statement: a transaction that is neither endless nor one of many.
CHUNK = 500_000

#: Done executions: so many DAGs of ten tasks each, a run after the other; each was heard of. Every tenth has steps
#: and an effect.
PAST = """
with made as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, state, created_at, finished_at,
        heard_at)
    select
        sha256(('past ' || n)::bytea), 'dag_' || (n / 10) %% 200, 'run_' || n / 2000, 'task_' || n %% 10, -1,
        'succeeded',
        now() - make_interval(days => 2), now() - make_interval(days => 1), now() - make_interval(days => 1)
    from generate_series(%(from)s::bigint, %(to)s::bigint) n
    returning execution_id, created_at, finished_at
),
attempts as (
    insert into aiflow.attempt (execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number,
        run_after, sign, owner, started_at, ended_at, ending)
    select execution_id, 1, 1, gen_random_uuid(), 1, 3, 3, 0, created_at, 'first', %(owner)s::jsonb, created_at,
        created_at + make_interval(secs => 20 + execution_id %% 100), 'succeeded'
    from made
),
effects as (
    insert into aiflow.effect (identity, namespace, name, key, state, intent_no, succeeded_no, execution_id)
    select sha256(('done ' || execution_id)::bytea), 'dag:past', 'pay', execution_id::text, 'succeeded', 1, 1,
        execution_id
    from made where execution_id %% 10 = 0
    returning effect_id, execution_id
),
intents as (
    insert into aiflow.intent (intent_id, effect_id, no, repeat, execution_id, fence, generation, request, request_fp,
        timeout_s, outcome, settled_at)
    select gen_random_uuid(), effect_id, 1, 0, execution_id, 1, 1, '1', sha256('request'), 60, 'succeeded', now()
    from effects
)
insert into aiflow.step (execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result,
    seal, ended_at, duration_ms)
select execution_id, 1, sha256(('step ' || execution_id || ' ' || n)::bytea), 'step', 'step_' || n, '',
    sha256('fingerprint'), 0, 1, '1', 's', finished_at, 100 * n + execution_id %% 100
from made, generate_series(1, 5) n
where execution_id %% 10 = 0
"""

#: Executions at work, each with steps, events, an open effect and three attempts, the last of which is requeued; some
#: lapsed, some without progress. The ids of their tasks are those of the past.
PRESENT = """
with made as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, fence)
    select
        sha256(('present ' || n)::bytea), 'dag_' || (n / 10) %% 200, 'run_now_' || n / 100, 'task_' || n %% 10, n, 3
    from generate_series(1, %(live)s) n
    returning execution_id, map_index as which
),
attempts as (
    insert into aiflow.attempt (execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number,
        run_after, sign, owner, started_at, ended_at, ending)
    select execution_id, f, f, gen_random_uuid(), f, 3, 3, f, now(), case f when 1 then 'first' else 'cleared' end
        ::aiflow.attempt_sign, %(owner)s::jsonb, now() - make_interval(mins => 40 - 10 * f),
        case when f < 3 then now() - make_interval(mins => 30 - 10 * f) end,
        case when f < 3 then 'lapsed' end::aiflow.attempt_ending
    from made, generate_series(1, 3) f
),
marks as (
    insert into aiflow.requeue (execution_id, fence, ti_id, clear_number, clear_until, clears, state, at)
    select execution_id, f, gen_random_uuid(), f, f + 1, 1, 'consumed', now() - make_interval(mins => 30 - 10 * f)
    from made, generate_series(1, 2) f
),
leases as (
    insert into aiflow.lease (execution_id, fence, expires_at, progress_at, step_name)
    select
        execution_id, 3,
        now() + case when which <= %(lapsed)s then make_interval(secs => -which) else make_interval(hours => 1) end,
        now() - case
            when which <= %(lapsed)s + %(hung)s then make_interval(hours => 2) else make_interval(secs => 5)
        end,
        'step_' || 1 + which %% 5
    from made
),
events as (
    insert into aiflow.event (execution_id, fence, seq, kind, data)
    select execution_id, f, n, case when n = 1 then 'attempt' else 'step' end,
        convert_to('{"name":"step_' || n || '"}', 'UTF8')
    from made, generate_series(1, 2) f, generate_series(1, 20) n
),
effects as (
    insert into aiflow.effect (identity, namespace, name, key, state, intent_no, execution_id)
    select sha256(('effect ' || execution_id)::bytea), 'dag:bench', 'pay', execution_id::text, 'intended', 1,
        execution_id
    from made
    returning effect_id, execution_id
),
intents as (
    insert into aiflow.intent (intent_id, effect_id, no, repeat, execution_id, fence, generation, request, request_fp,
        timeout_s)
    select gen_random_uuid(), effect_id, 1, 0, execution_id, 3, 1, '1', sha256('request'), 60 from effects
)
insert into aiflow.step (execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result,
    seal, ended_at, duration_ms)
select execution_id, 1, sha256(('now ' || execution_id || ' ' || n)::bytea), 'step', 'step_' || n, '',
    sha256('fingerprint'), 0, 1, '1', 's', now(), 100 * n
from made, generate_series(1, 20) n
"""

#: Executions that wait for a person, looked at and left alone, and old marks and incidents.
WAITING = """
with made as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, state)
    select sha256(('waiting ' || n)::bytea), 'dag_0', 'run_waiting', 'task_0', n, 'paused'
    from generate_series(1, %(waiting)s) n
    returning execution_id, dag_id, run_id, task_id, map_index
),
attempts as (
    insert into aiflow.attempt (execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number,
        run_after, sign, owner, started_at, ended_at, ending)
    select execution_id, 1, 1, gen_random_uuid(), 1, 3, 3, 0, now(), 'first', %(owner)s::jsonb,
        now() - make_interval(hours => 2), now() - make_interval(hours => 1), 'paused'
    from made
),
old as (
    insert into aiflow.requeue (execution_id, fence, ti_id, clear_number, clear_until, clears, state, at)
    select n, 1, gen_random_uuid(), 0, 1, 1, 'consumed', now() - make_interval(days => 1)
    from generate_series(1, 10 * %(waiting)s) n
)
insert into aiflow.incident (execution_id, fence, dag_id, run_id, task_id, map_index, kind, basis, decision, why,
    report, look_again_at, detected_after)
select execution_id, 1, dag_id, run_id, task_id, map_index, 'lost_return', 'paused', 'leave', 'it is paused', false,
    now() + make_interval(hours => 1), 60
from made
"""


def fill(
    connection: psycopg.Connection[Any], owner: str, *, past: int, live: int = 1_000, lapsed: int = 40, hung: int = 10
) -> None:
    """
    Fill a migrated ledger.

    :param connection: in autocommit.
    :param owner: of every attempt, as JSON.
    :param past: executions that are done.
    :param live: executions with a lease.
    :param lapsed: how many of those have lapsed.
    :param hung: how many more of those are without progress.
    """
    for first in range(1, past + 1, CHUNK):
        connection.execute(PAST, {"from": first, "to": min(past, first + CHUNK - 1), "owner": owner})
    connection.execute(PRESENT, {"live": live, "lapsed": lapsed, "hung": hung, "owner": owner})
    connection.execute(WAITING, {"waiting": live, "owner": owner})
    connection.execute("vacuum analyze aiflow.execution, aiflow.attempt, aiflow.step, aiflow.lease, aiflow.requeue")
    connection.execute("vacuum analyze aiflow.incident, aiflow.event, aiflow.effect, aiflow.intent")
