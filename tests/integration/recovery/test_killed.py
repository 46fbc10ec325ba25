"""Recovery that is killed on the way, and two of them at once, over a real ledger: one requeue, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.durable.execution import Taken
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.stall import Evidence, Quarantine, Requeue, StallKind
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.recovery.airflow_view import AirflowView
from airflow_aiflow.recovery.below import make_up
from airflow_aiflow.recovery.deeds import Deed, Deeds
from airflow_aiflow.recovery.one_pass import decide_all
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_recovery import MARK_SECONDS, PostgresRecovery
from tests.airflow_api import PASSWORD, RecoveringStandIn, serving
from tests.contract.ledger_world import PostgresWorld, an_attempt, take

DAG = "billing"


@pytest.fixture(scope="module")
def world(postgres_server: PostgresServer) -> Iterator[PostgresWorld]:
    owner = postgres_server.fresh_database("killed_recovery")
    upgrade(owner)
    with closing(PostgresWorld(postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"])), owner)) as made:
        yield made


class Airflow(RecoveringStandIn):
    """Carry out what is asked, as a real one does."""

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> tuple[int, Any]:
        status, value = super().answer(method, path, query, body, token)
        if path.endswith("/clearTaskInstances") and status == 200:
            for task_id in body["task_ids"]:
                self.put(task_id, now_id(), "queued", 2)
        return status, value


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    stand_in = Airflow(DAG, f"manual__{uuid4()}")
    with serving(stand_in):
        yield stand_in


def now_id() -> UUID:
    """Make the id of a task instance of this moment, as Airflow does."""
    stamp = int(datetime.now(UTC).timestamp() * 1000)
    return UUID(int=(stamp << 80) | (7 << 76) | (2 << 62) | (uuid4().int & ((1 << 62) - 1)))


def stalls(world: PostgresWorld, airflow: Airflow, task_id: str = "pay") -> Taken:
    """Have an attempt whose lease has lapsed, and that Airflow holds for running."""
    attempt = an_attempt(ExecutionId(DAG, airflow.run_id, task_id), ti_id=now_id())
    airflow.put(task_id, attempt.counters.ti_id, "running")
    taken = take(world.ledger, attempt)
    world.pass_time(3600)
    return taken


@contextmanager
def opened(world: PostgresWorld, airflow: Airflow) -> Iterator[tuple[PostgresRecovery, AirflowApi]]:
    api = AirflowApi(airflow.url, login="admin", password=PASSWORD)
    with closing(PostgresRecovery.connect(world.dsn)) as ledger, closing(api):
        yield ledger, api


def decided(
    ledger: PostgresRecovery, api: AirflowApi, airflow: Airflow, task_id: str = "pay"
) -> list[tuple[Evidence, Requeue | Quarantine]]:
    """Decide on one execution."""
    stall = ledger.execution(ExecutionId(DAG, airflow.run_id, task_id))
    assert stall is not None
    view = AirflowView(api)
    seen = view.closely(view.read([stall.execution]))
    found = decide_all([stall], seen, {}, RecoveryPolicy(), dead=())
    return [(evidence, what) for evidence, what in found if isinstance(what, Requeue | Quarantine)]


def one_pass(world: PostgresWorld, airflow: Airflow) -> list[Deed]:
    with opened(world, airflow) as (ledger, api):
        return Deeds(ledger, api).carry_out(decided(ledger, api, airflow))


def killed_pass(world: PostgresWorld, airflow: Airflow, site: str) -> None:
    """Have a process make a pass that kills itself on the way."""
    host, _, port = airflow.url.removeprefix("http://").partition(":")
    api = {"conn_type": "http", "host": host, "port": int(port), "login": "admin", "password": PASSWORD}
    connections = {
        "AIRFLOW_CONN_AIFLOW_API": json.dumps(api),
        "AIRFLOW_CONN_AIFLOW_LEDGER": world.dsn.replace("postgresql://", "postgres://"),
        "AIFLOW_FAILPOINT": site,
    }
    command = [
        sys.executable,
        "-m",
        "airflow_aiflow.cli",
        "runs",
        "requeue",
        f"{DAG}/{airflow.run_id}",
        "--task",
        "pay",
    ]
    ended = subprocess.run(command, env=os.environ | connections, capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def age_marks(world: PostgresWorld, seconds: float) -> None:
    """Make marks so much older."""
    world.behind.execute("update aiflow.requeue set at = at - make_interval(secs => %s)", (seconds,))


def requeue_states(world: PostgresWorld, airflow: Airflow) -> list[str]:
    query = "select r.state::text from aiflow.requeue r join aiflow.execution e using (execution_id) where run_id = %s"
    return [str(state) for (state,) in world.behind.execute(query, (airflow.run_id,)).fetchall()]


@pytest.mark.parametrize(
    ("site", "left", "state"),
    [("after_mark", 0, "running"), ("after_set_state", 0, "failed"), ("after_clear", 1, "queued")],
)
def test_a_killed_pass_is_made_up_for_by_the_next(
    world: PostgresWorld, airflow: Airflow, site: str, left: int, state: str
) -> None:
    taken = stalls(world, airflow)
    killed_pass(world, airflow, site)
    assert (len(airflow.cleared), airflow.rows["pay"]["state"]) == (left, state)
    # The mark stands for a while: somebody may be about to act on it.
    assert one_pass(world, airflow) == []
    age_marks(world, MARK_SECONDS + 1)
    one_pass(world, airflow)
    one_pass(world, airflow)
    assert len(airflow.cleared) == 1
    assert requeue_states(world, airflow) == ["marked" if left else "cleared"]
    _goes_on(world, airflow, taken)
    assert requeue_states(world, airflow) == ["consumed"]


def test_what_failed_below_a_pass_that_was_killed_after_its_clear_runs_again(
    world: PostgresWorld, airflow: Airflow
) -> None:
    taken = stalls(world, airflow)
    killed_pass(world, airflow, "after_clear")
    # The scheduler had seen a failed task before it was cleared.
    airflow.put("report", now_id(), "upstream_failed")
    age_marks(world, MARK_SECONDS + 1)
    with opened(world, airflow) as (ledger, api):
        assert make_up(ledger, api) == []
        _goes_on(world, airflow, taken)
        assert make_up(ledger, api) == [ExecutionId(DAG, airflow.run_id, "report")]
        assert make_up(ledger, api) == []
    assert [body["task_ids"] for body in airflow.cleared] == [["pay"], ["report"]]


def _goes_on(world: PostgresWorld, airflow: Airflow, taken: Taken) -> None:
    """Have the next attempt, as Airflow brings it after one clear: it resumes."""
    execution = ExecutionId(DAG, airflow.run_id, "pay")
    counters: dict[str, Any] = {
        "try_number": 2,
        "max_tries": 4,
        "clear_number": 1,
        "ti_id": UUID(airflow.rows["pay"]["id"]),
    }
    again = take(world.ledger, an_attempt(execution, **counters))
    assert (again.generation, again.requeued) == (taken.generation, True)


def test_of_two_at_once_one_acts(world: PostgresWorld, airflow: Airflow) -> None:
    stalls(world, airflow)
    barrier = threading.Barrier(4)

    def act() -> list[Deed]:
        with opened(world, airflow) as (ledger, api):
            wished = decided(ledger, api, airflow)
            barrier.wait(30)
            return Deeds(ledger, api).carry_out(wished)

    with ThreadPoolExecutor(4) as pool:
        done = [deed for each in [pool.submit(act) for _ in range(4)] for deed in each.result()]
    assert (len(done), len(airflow.cleared), requeue_states(world, airflow)) == (1, 1, ["cleared"])


def test_an_attempt_that_came_between_look_and_deed_is_left_alone(world: PostgresWorld, airflow: Airflow) -> None:
    stalls(world, airflow)
    with opened(world, airflow) as (ledger, api):
        wished = decided(ledger, api, airflow)
        # Airflow says the same as before, for its word on the newcomer is late: the ledger's fence has moved.
        execution = ExecutionId(DAG, airflow.run_id, "pay")
        take(world.ledger, an_attempt(execution, try_number=2, ti_id=now_id()))
        assert Deeds(ledger, api).carry_out(wished) == []
    assert (airflow.cleared, requeue_states(world, airflow)) == ([], [])


def test_one_that_renews_its_lease_while_it_is_to_be_given_up_goes_on(world: PostgresWorld, airflow: Airflow) -> None:
    taken = stalls(world, airflow)
    with opened(world, airflow) as (ledger, api):
        [(evidence, _)] = decided(ledger, api, airflow)
        world.behind.execute(
            "update aiflow.lease set expires_at = clock_timestamp() + interval '30 s' where execution_id = %s",
            (taken.lease.execution_pk,),
        )
        given_up = Quarantine(StallKind.DEAD_WORKER, "3 attempts died in the same step")
        assert Deeds(ledger, api).carry_out([(evidence, given_up)]) == []
    assert airflow.rows["pay"]["state"] == "running"
