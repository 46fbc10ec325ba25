"""How many statements a resume asks: a count is the same on every machine."""

from __future__ import annotations

from typing import Any

import psycopg

from airflow_aiflow.durable.attempt import digest_upstream
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask
from bench.counting import counting_ledger
from bench.ours import compute, send

#: Map indexes of the cleared group, and those of them whose statements are counted.
GROUP, COUNTED = 1_200, 20

#: Steps and effects of each.
STEPS = 10

#: Effects that are replayed.
EFFECTS = 1_000

RAN, RAN_AGAIN = digest_upstream([("list", -1, 1.0)]), digest_upstream([("list", -1, 2.0)])

#: Make siblings of one execution; their seals are not theirs, but nobody reads what all have themselves.
SIBLINGS = """
with made as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, state, finished_at)
    select sha256(('bench ' || n)::bytea), dag_id, run_id, task_id, n, 'succeeded', clock_timestamp()
    from aiflow.execution, generate_series(%(from)s::integer, %(to)s::integer) n where execution_id = %(like)s
    returning execution_id
),
attempts as (
    insert into aiflow.attempt (execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number,
        run_after, sign, owner, ended_at, ending)
    select made.execution_id, 1, 1, gen_random_uuid(), 1, 3, 3, 0, a.run_after, 'first', a.owner, clock_timestamp(),
        'succeeded'
    from made, aiflow.attempt a where a.execution_id = %(like)s and a.fence = 1
)
insert into aiflow.step (execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result,
    seal, ended_at, duration_ms)
select made.execution_id, 1, sha256(s.step_key || made.execution_id::text::bytea), s.kind, s.name, s.unit,
    s.fingerprint, s.occurrence, 1, s.result, s.seal, s.ended_at, s.duration_ms
from made, aiflow.step s where s.execution_id = %(like)s
"""


def work(index: int) -> Any:
    """Give the body of one map index."""

    def body(flow: Flow) -> None:
        for number in range(STEPS):
            flow.step("compute", compute, number, f"item {index}")
            flow.effect("send", send, number, "x", key=f"group/{index}/{number}")

    return body


def cleared_group(dsn: str) -> dict[str, Any]:
    """
    Count the statements of a map index that is cleared with all its siblings, all done.

    :param dsn: of a migrated ledger.
    """
    ledger, counts = counting_ledger(dsn)
    try:
        tasks = [
            DurableTask(ledger=ledger, clock=SystemClock(), run_id="group", map_index=index) for index in range(COUNTED)
        ]
        for index, task in enumerate(tasks):
            task.upstream_digest = RAN
            task.run(work(index))
        first = ledger.standing(tasks[0].execution)
        assert first is not None
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SIBLINGS, {"like": first.execution_pk, "from": COUNTED, "to": GROUP - 1})
            connection.execute("analyze aiflow.execution, aiflow.attempt, aiflow.step")
        counts.clear()
        for index, task in enumerate(tasks):
            task.cleared()
            task.upstream_digest = RAN_AGAIN
            task.run(work(index))
    finally:
        ledger.close()
    assert counts["record_one"] == counts["intend"] == 0, counts
    return {"cleared_mapped_queries": sum(counts.values()) / COUNTED}


def replayed_effects(dsn: str) -> dict[str, Any]:
    """
    Count the statements that replays of succeeded effects ask, per effect.

    :param dsn: of a migrated ledger.
    """
    ledger, counts = counting_ledger(dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id="effects")

    def body(flow: Flow) -> None:
        for number in range(EFFECTS):
            flow.effect("send", send, number, "x", key=f"replay/{number}")

    try:
        task.run(body)
        with open_flow(task.attempt(), task.services) as flow:
            counts.clear()
            body(flow)
            asked = sum(counts.values())
    finally:
        ledger.close()
    return {"effect_replay_queries": asked / EFFECTS}
