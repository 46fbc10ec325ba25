"""
What the overview, the inbox, the feeds and the search ask of a large ledger.

By itself: ``python -m bench.overview --steps 10000000``, which needs 15 GB of disk and some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres_figures import PostgresFigures
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.storage.postgres_overview import PostgresOverview
from bench.timing import median

#: Steps of an execution: so many that ten million are a million tasks.
STEPS_OF_ONE = 10

#: Executions of one statement.
CHUNK = 100_000

#: Of a thousand executions those that failed for good, and hold no lease.
FAILED_OF_1000 = 15

#: DAGs, and days over which the past is spread.
DAGS, DAYS = 50, 60

#: Looks that are timed, after some that make the server and the connection warm.
LOOKS, WARM = 20, 5

#: What the overview itself asks; the rest is asked by the pages beside it and by a DAG's tab.
OVERVIEW = ("days", "detections", "waiting", "figures")

OWNER = json.dumps(Owner("worker", "a boot", 4026531836, 4711, 1, "ti").to_plain())

#: Ended executions, ten steps each, every fifth of them a model call; every tenth execution has an effect.
PAST = """
with made as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, state, created_at, finished_at,
        heard_at)
    select
        sha256(('past ' || n)::bytea), 'dag_' || n %% %(dags)s, 'run_' || n / 500, 'task_' || n %% 10, -1,
        case when n %% 1000 < %(failed)s then 'failed' else 'succeeded' end::aiflow.execution_state,
        now() - make_interval(days => %(days)s) * (1 - n::double precision / %(all)s),
        now() - make_interval(days => %(days)s) * (1 - n::double precision / %(all)s),
        case when n %% 1000 >= %(failed)s then now() end
    from generate_series(%(from)s::bigint, %(to)s::bigint) n
    returning execution_id, created_at, finished_at, state
),
attempts as (
    insert into aiflow.attempt (execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number,
        run_after, sign, owner, started_at, ended_at, ending)
    select execution_id, 1, 1, gen_random_uuid(), 1, 3, 3, 0, created_at, 'first', %(owner)s::jsonb, created_at,
        finished_at, state::text::aiflow.attempt_ending
    from made
),
events as (
    insert into aiflow.event (execution_id, fence, seq, at, kind, data)
    select execution_id, 1, seq, finished_at, case seq when 1 then 'progress' else 'step' end,
        convert_to('{"done":10,"total":10,"message":"each: 10 of 10 (100 %%), 5.0 items/s"}', 'UTF8')
    from made, generate_series(1, 3) seq
    where execution_id %% 10 = 0
),
effects as (
    insert into aiflow.effect (identity, namespace, name, key, state, intent_no, succeeded_no, execution_id)
    select sha256(('done ' || execution_id)::bytea), 'dag:past', 'pay', 'order/' || execution_id, 'succeeded', 1, 1,
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
    seal, ended_at, duration_ms, model, tokens_in, tokens_out, cost, recorded_at)
select execution_id, 1, sha256(('step ' || execution_id || ' ' || n)::bytea),
    case when n %% 5 = 0 then 'llm' else 'step' end, 'step_' || n, '', sha256('fingerprint'), 0, 1, '1', 's',
    finished_at, 100 * n,
    case when n %% 5 = 0 then 'openai:gpt-5-mini' end, case when n %% 5 = 0 then 900 end,
    case when n %% 5 = 0 then 100 end, case when n %% 5 = 0 then 0.001 end, finished_at
from made, generate_series(1, %(steps)s) n
"""

#: What waits: calls in doubt, and calls without an outcome of executions that failed.
DOUBTS = """
with owners as (
    select execution_id, row_number() over (order by execution_id) as n from aiflow.execution
    where state = 'failed' order by execution_id desc limit 60
),
effects as (
    insert into aiflow.effect (identity, namespace, name, key, state, intent_no, execution_id)
    select sha256(('doubt ' || n)::bytea), 'dag:past', 'pay', 'doubt/' || n,
        case when n %% 2 = 0 then 'in_doubt' else 'intended' end::aiflow.effect_state, 1, execution_id
    from owners
    returning effect_id, execution_id
)
insert into aiflow.intent (intent_id, effect_id, no, repeat, execution_id, fence, generation, request, request_fp,
    timeout_s, intended_at)
select gen_random_uuid(), effect_id, 1, 0, execution_id, 1, 1, '1', sha256('request'), 60, now() - interval '1 day'
from effects
"""

#: What recovery found, and the sums that the tally keeps.
FEEDS = (
    """
insert into aiflow.incident (execution_id, fence, dag_id, run_id, task_id, map_index, kind, basis, decision, why,
    report, look_again_at, detected_after, found_at)
select execution_id, 1, dag_id, run_id, task_id, map_index, 'dead_worker', 'dead', 'requeue', 'its process is gone',
    true, now() + interval '1 hour', 4.2, finished_at
from aiflow.execution where execution_id %% 20 = 0 order by execution_id limit 5000
""",
    """
insert into aiflow.dag_day (day, dag_id, paid_calls, paid_cost, runs, executions, succeeded, failed)
select current_date - d, 'dag_' || n, 1000, 4.2, 10, 300, 290, 10
from generate_series(0, 365) d, generate_series(0, %(dags)s - 1) n
""",
    "update aiflow.tally_mark set upto = now() - interval '40 seconds'",
)


def fill(connection: psycopg.Connection[Any], steps: int) -> None:
    """
    Fill a migrated, empty ledger.

    :param connection: in autocommit.
    :param steps: about so many.
    """
    executions = max(2_000, steps // STEPS_OF_ONE)
    words = {"owner": OWNER, "dags": DAGS, "days": DAYS, "failed": FAILED_OF_1000, "all": executions}
    for first in range(1, executions + 1, CHUNK):
        chunk = {"from": first, "to": min(executions, first + CHUNK - 1), "steps": STEPS_OF_ONE}
        connection.execute(PAST, words | chunk)
    connection.execute(DOUBTS, words)
    for each in FEEDS:
        connection.execute(each, words)
    connection.execute("vacuum analyze aiflow.execution, aiflow.attempt, aiflow.step, aiflow.effect, aiflow.intent")
    connection.execute("vacuum analyze aiflow.event, aiflow.incident, aiflow.dag_day, aiflow.question")


def overview(dsn: str, steps: int) -> dict[str, Any]:
    """
    Time what the pages ask.

    :param dsn: of a migrated, empty ledger.
    :param steps: recorded ones.
    :return: the median of the overview's slowest query, and each one's, those of the other pages too.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        fill(connection, steps)
    dags = [f"dag_{number}" for number in range(DAGS)]
    connections = Connections(dsn, 2)
    with (
        closing(connections),
        closing(PostgresInbox.connect(dsn)) as inbox,
        closing(PostgresFigures.connect(dsn)) as now,
    ):
        pages = PostgresOverview(connections, PayloadCipher())
        asked: dict[str, Callable[[], Any]] = {
            "days": lambda: pages.days(30),
            "detections": lambda: pages.detections(30),
            "waiting": lambda: inbox.waiting(limit=1_000),
            "figures": now.look,
            "recoveries": lambda: pages.recoveries(dags, before=2**62, limit=51),
            "batches": lambda: pages.batches(dags),
            "answers": lambda: pages.said(dags, limit=50),
            "search_key": lambda: inbox.effects(key="order/1000", limit=50),
            "search_run": lambda: pages.runs_called("run_1", dags),
            "search_artifact": lambda: pages.artifacts(b"\x01\x02\x03", dags),
            "history": lambda: pages.run_sums("dag_1", [f"run_{number}" for number in range(30)]),
        }
        assert len(asked["waiting"]()) == 60
        assert len(asked["recoveries"]()) == 51
        times = {name: _median(call) for name, call in asked.items()}
    return {"overview_ms": max(times[name] for name in OVERVIEW), "overview": {"steps": steps, **times}}


def _median(call: Callable[[], Any]) -> float:
    times = []
    for number in range(WARM + LOOKS):
        began = time.perf_counter()
        call()
        if number >= WARM:
            times.append((time.perf_counter() - began) * 1000)
    return median(times)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m bench.overview", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="recorded steps (default 1,000,000)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aiflow-bench-") as folder, PostgresServer(Path(folder) / "pg") as server:
        dsn = server.fresh_database()
        upgrade(dsn)
        print(json.dumps(overview(dsn, arguments.steps), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
