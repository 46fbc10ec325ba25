"""An API server that is killed in the middle of a submit, of a stream, of a cancel: the client finds its one task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from airflow_aiflow.client import AiflowClient, Event
from airflow_aiflow.durable.submission import SubmissionState
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.storage.postgres import PostgresLedger
from tests.integration.api.conftest import World
from tests.integration.api.file_runs import FileRuns
from tests.integration.api.test_events import emits, task, ticks, until

pytestmark = pytest.mark.timeout(600)

PATIENCE = 60.0
#: Seconds for a new process on a busy machine: it brings Airflow's API server's code with it.
START = 120.0
GIVEN = {"question": "why?"}


class Killed:
    """
    Be a server that can be killed and started again on its port.

    :param dsn: of the ledger.
    :param folder: of Airflow's runs.
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        self._said = [dsn, str(free_port()), str(folder)]
        self.url = f"http://127.0.0.1:{self._said[1]}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, failpoint: str = "") -> None:
        """Start it, perhaps to die at a failpoint; it answers when this returns."""
        command = [sys.executable, "-m", "tests.integration.api.killed_server", *self._said]
        environment = os.environ | {"PYTHONPATH": ".", "AIFLOW_FAILPOINT": failpoint}
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[3], env=environment)
        never = threading.Event()
        for _ in range(int(START / 0.1)):
            if self._answers():
                return
            never.wait(0.1)
        raise AssertionError("it does not answer")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "it did not start"
        try:
            return httpx.get(f"{self.url}/aiflow/api/v1/submissions/{UUID(int=1)}").status_code == 404
        except httpx.TransportError:
            return False

    def died(self) -> bool:
        """Wait for its death by a failpoint."""
        assert self.process is not None
        return self.process.wait(PATIENCE) == -signal.SIGKILL

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "runs"
    made.mkdir()
    return made


@pytest.fixture
def server(world: World, folder: Path) -> Iterator[Killed]:
    made = Killed(world.dsn, folder)
    yield made
    made.kill()


@pytest.fixture
def other(world: World, folder: Path) -> Iterator[World]:
    """Give another server's rounds, over the same ledger and the same Airflow."""
    made = World(world.dsn, FileRuns(folder))
    yield made
    for each in (made.submissions, made.reader, made.events, made.cursors):
        each.close()


def while_killed(server: Killed, ask: Callable[[AiflowClient], Any]) -> Any:
    """Ask a server that dies of it; the client asks on until there is another one."""
    with ThreadPoolExecutor(1) as pool, AiflowClient(server.url, token="any", patience=PATIENCE) as client:
        asked = pool.submit(ask, client)
        assert server.died()
        server.start()
        return asked.result(PATIENCE)


def test_killed_between_the_row_and_the_answer(server: Killed, folder: Path, world: World) -> None:
    server.start("after_submit")
    one = while_killed(server, lambda client: client.submit("answer", GIVEN, key="k"))
    until(lambda: [each.name for each in folder.iterdir()] == [one["run_id"]])
    with AiflowClient(server.url, token="any") as client:
        assert client.submit("answer", GIVEN, key="k")["submission_id"] == one["submission_id"]
        assert client.get(one["submission_id"])["state"] == "running"


def test_killed_between_the_run_and_its_note(server: Killed, folder: Path, other: World) -> None:
    """Here the client had its answer; who makes its run again finds it made."""
    server.start("after_run_made")
    with AiflowClient(server.url, token="any", patience=PATIENCE) as client:
        one = client.submit("answer", GIVEN, key="k")
        assert server.died()
        found = other.submissions.get(UUID(one["submission_id"]))
        assert found is not None
        assert not found.made
        assert other.service.heal(older_than=0) == 1
        server.start()
        assert client.get(one["submission_id"])["state"] == "running"
        assert client.submit("answer", GIVEN, key="k")["submission_id"] == one["submission_id"]
    assert [each.name for each in folder.iterdir()] == [one["run_id"]]


def test_killed_in_the_middle_of_a_stream(server: Killed, folder: Path, world: World) -> None:
    server.start()
    ledger = PostgresLedger.connect(world.dsn, tells=True)
    seen: list[Event] = []
    with AiflowClient(server.url, token="any", patience=PATIENCE) as client:
        one = client.submit("answer", GIVEN, key="k")
        until(lambda: (folder / one["run_id"]).exists())

        def follow() -> None:
            for event in client.stream(one["submission_id"]):
                seen.append(event)  # each as it comes

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        for round_ in range(3):
            task(ledger, one, f"task{round_}").run(emits(5, 5 * round_))
            until(lambda count=5 * round_ + 3: len(ticks(seen)) >= count)
            server.kill()
            task(ledger, one, f"unseen{round_}").run(emits(5, 100 + 5 * round_))
            server.start()
        (folder / one["run_id"]).write_text("success")
        thread.join(PATIENCE)
    ledger.close()
    assert not thread.is_alive()
    assert sorted(ticks(seen)) == [*range(15), *range(100, 115)], "each once, whoever served"
    assert seen[-1].data["state"] == "succeeded"


@pytest.mark.parametrize("again", [True, False], ids=["the client asks on", "nobody asks"])
def test_killed_between_the_wish_to_cancel_and_the_deed(
    server: Killed, folder: Path, other: World, again: bool
) -> None:
    server.start("after_cancel_asked")
    with AiflowClient(server.url, token="any") as client:
        one = client.submit("answer", GIVEN, key="k")
        until(lambda: (folder / one["run_id"]).exists())
    if again:
        assert while_killed(server, lambda client: client.cancel(one["submission_id"]))["state"] == "cancelled"
    else:
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{server.url}/aiflow/api/v1/submissions/{one['submission_id']}:cancel")
        assert server.died()
        assert other.service.press_on() == 1
    assert (folder / one["run_id"]).read_text() == "failed"
    found = other.submissions.get(UUID(one["submission_id"]))
    assert found is not None
    assert found.state is SubmissionState.CANCELLED
