"""`aiflow runs requeue` over a real ledger: what is stalled is requeued once, what must never be is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.execution import ExecutionState, Taken
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
from tests.airflow_api import PASSWORD, RecoveringStandIn, serving
from tests.contract.ledger_world import PostgresWorld, an_attempt, take

DAG = "billing"

Requeue = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def world(postgres_server: PostgresServer) -> Iterator[PostgresWorld]:
    owner = postgres_server.fresh_database("requeue")
    upgrade(owner)
    with closing(PostgresWorld(postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"])), owner)) as made:
        yield made


@pytest.fixture
def airflow(world: PostgresWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecoveringStandIn]:
    stand_in = RecoveringStandIn(DAG, f"manual__{uuid4()}")
    with serving(stand_in) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        api = {"conn_type": "http", "host": host, "port": int(port), "login": "admin", "password": PASSWORD}
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(api))
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_LEDGER", world.dsn.replace("postgresql://", "postgres://"))
        yield stand_in


@pytest.fixture
def requeue(airflow: RecoveringStandIn, capsys: pytest.CaptureFixture[str]) -> Requeue:
    def requeue(*words: str) -> tuple[int, Any]:
        code = main(["runs", "requeue", f"{DAG}/{airflow.run_id}", *words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return requeue


def now_id() -> UUID:
    """Make the id of a task instance of this moment, as Airflow does."""
    stamp = int(datetime.now(UTC).timestamp() * 1000)
    return UUID(int=(stamp << 80) | (7 << 76) | (2 << 62) | (uuid4().int & ((1 << 62) - 1)))


def at_work(
    world: PostgresWorld, airflow: RecoveringStandIn, task_id: str = "pay", state: str = "running"
) -> tuple[Attempt, Taken]:
    """Have an attempt that holds its lease, and whose task instance Airflow knows."""
    attempt = an_attempt(ExecutionId(DAG, airflow.run_id, task_id), ti_id=now_id())
    airflow.put(task_id, attempt.counters.ti_id, state)
    return attempt, take(world.ledger, attempt)


def test_a_run_that_the_scheduler_ended_meanwhile_goes_on(
    world: PostgresWorld, airflow: RecoveringStandIn, requeue: Requeue
) -> None:
    """It saw the task failed before the clear, and wrote its word after: the clear had met a run at work."""
    at_work(world, airflow)
    world.pass_time(3600)
    airflow.run_state = "failed"
    code, said = requeue()
    assert (code, [one["task_id"] for one in said["requeued"]]) == (0, ["pay"])
    assert airflow.run_state == "queued"


def test_a_dead_workers_task_is_requeued_once(
    world: PostgresWorld, airflow: RecoveringStandIn, requeue: Requeue
) -> None:
    at_work(world, airflow)
    world.pass_time(3600)
    code, said = requeue("--preview")
    assert (code, [one["task_id"] for one in said["requeued"]]) == (0, ["pay"])
    assert airflow.cleared == []

    code, said = requeue()
    assert code == 0
    [done] = said["requeued"]
    assert (done["task_id"], done["kind"]) == ("pay", "dead_worker")
    assert airflow.rows["pay"]["state"] == "failed"
    assert [body["task_ids"] for body in airflow.cleared] == [["pay"]]
    assert airflow.cleared[0]["prevent_running_task"] is True

    # Airflow has queued it again: it is not requeued a second time.
    airflow.put("pay", now_id(), "queued", 2)
    code, said = requeue()
    assert (code, said["requeued"], len(airflow.cleared)) == (1, [], 1)
    assert said["left"][0]["why"] == "Airflow is bringing an attempt"


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_what_must_never_be_requeued_is_refused_with_the_reason(
    world: PostgresWorld, airflow: RecoveringStandIn, requeue: Requeue, force: tuple[str, ...]
) -> None:
    _, done = at_work(world, airflow, "report", "success")
    world.ledger.finish(done.lease, ExecutionState.SUCCEEDED, result=None)
    at_work(world, airflow, "marked", "failed")
    world.pass_time(3600)
    at_work(world, airflow, "alive")
    airflow.log.append(
        {
            "event": "patch_task_instance",
            "task_id": "marked",
            "owner": "ada",
            "when": datetime.now(UTC).isoformat(),
            "extra": json.dumps({"new_state": "failed", "map_index": "-1"}),
        }
    )
    code, said = requeue(*force)
    assert (code, said["requeued"], airflow.cleared) == (1, [], [])
    why = {one["task_id"]: one["why"] for one in said["left"]}
    assert "it is at work" in why["alive"]
    assert "ada set it to failed" in why["marked"]
    assert "it succeeded" in why["report"]
    assert not [one for one in airflow.requests if one.startswith("PATCH")]


def test_a_paused_dag_waits_for_a_persons_force(
    world: PostgresWorld, airflow: RecoveringStandIn, requeue: Requeue
) -> None:
    at_work(world, airflow)
    world.pass_time(3600)
    airflow.paused = True
    code, said = requeue()
    assert (code, airflow.cleared) == (1, [])
    assert "its DAG is paused" in said["left"][0]["why"]
    assert "--force" in said["left"][0]["hint"]
    assert requeue("--force")[0] == 0
    assert len(airflow.cleared) == 1


def test_quarantine_and_back_off_end_by_force(
    world: PostgresWorld, airflow: RecoveringStandIn, requeue: Requeue
) -> None:
    execution = ExecutionId(DAG, airflow.run_id, "pay")
    for number in (1, 2, 3):
        attempt = an_attempt(execution, number, ti_id=now_id())
        take(world.ledger, attempt)
        world.pass_time(60)
    airflow.put("pay", attempt.counters.ti_id, "failed", 3)
    code, said = requeue("--task", "pay")
    assert (code, airflow.cleared) == (1, [])
    assert "3 attempts died" in said["left"][0]["why"]
    assert "--force" in said["left"][0]["hint"]
    code, said = requeue("--task", "pay", "--force")
    assert (code, said["requeued"][0]["kind"]) == (0, "exhausted")
    assert len(airflow.cleared) == 1


def test_only_what_is_named_is_touched(world: PostgresWorld, airflow: RecoveringStandIn, requeue: Requeue) -> None:
    at_work(world, airflow, "pay")
    at_work(world, airflow, "report")
    world.pass_time(3600)
    code, said = requeue("--task", "report")
    assert (code, [one["task_id"] for one in said["requeued"]]) == (0, ["report"])
    assert said["left"] == []
    code, said = requeue("--task", "no_such")
    assert (code, said["error"]) == (1, "RunNotFoundError")
    assert "pay" in said["message"]


def test_recoverys_own_pass_at_the_same_moment_wins_once(
    world: PostgresWorld, airflow: RecoveringStandIn, requeue: Requeue
) -> None:
    attempt, _ = at_work(world, airflow)
    world.pass_time(3600)
    with closing(PostgresRecovery.connect(world.dsn)) as recovery:
        stall = recovery.execution(attempt.execution)
        assert stall is not None
        assert len(recovery.mark([stall])) == 1
        code, said = requeue()
    assert (code, said["requeued"], airflow.cleared) == (1, [], [])
    assert "recovery is at it already" in said["left"][0]["why"]


def test_people_read_what_was_done(
    world: PostgresWorld, airflow: RecoveringStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    at_work(world, airflow)
    world.pass_time(3600)
    assert main(["runs", "requeue", f"{DAG}/{airflow.run_id}"]) == 0
    out = capsys.readouterr().out
    assert "1 of 1 durable tasks requeued" in out
    assert "its lease has lapsed, and Airflow says running" in out
    assert main(["runs", "requeue", f"{DAG}/no-such-run"]) == 1
    assert "knows nothing of run" in capsys.readouterr().err
