"""
Every way in which a person or Airflow runs a task again, once in a real Airflow.

What is asserted of each: how often the step was computed, how often the effect was carried out, and in which generation
the last attempt stands. The runs are started together, for most of their time is Airflow's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.cli.ledger_address import connection_fields
from airflow_aiflow.durable.attempt import digest_upstream
from airflow_aiflow.hooks.airflow_api import api_of
from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack
from airflow_aiflow.runtime.process import start_time

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 90.0


@dataclass
class Situation:
    """One run, and the file in which its tasks count."""

    stack: Stack
    client: AirflowClient
    dag_id: str
    run_id: str
    folder: Path

    @property
    def lines(self) -> list[str]:
        """What the tasks have written so far."""
        file = self.folder / "count.txt"
        return file.read_text().splitlines() if file.exists() else []

    def count(self, kind: str, task_id: str = "work") -> int:
        """How often a step or effect was carried out."""
        return Counter(self.lines)[f"{kind} {task_id}"]

    def attempts(self, task_id: str = "work") -> list[tuple[int, int]]:
        """Number and generation of each attempt whose body began."""
        found = [line.split() for line in self.lines if line.startswith(f"attempt {task_id} ")]
        return [(int(words[2]), int(words[3])) for words in found]

    def ended(self, state: str) -> None:
        """Wait for the end of the run."""
        found = self.client.wait_for_run(self.dag_id, self.run_id, PATIENCE)
        assert found == state, self.lines

    def heard(self, task_id: str = "work") -> None:
        """Wait until the task process has noted that Airflow knows of the success: it comes just after the state."""
        query = (
            "select true from aiflow.execution where run_id = %s and dag_id = %s and task_id = %s "
            "and heard_at is not null"
        )

        def look() -> bool | None:
            with psycopg.connect(self.stack.postgres.dsn()) as connection:
                return bool(connection.execute(query, (self.run_id, self.dag_id, task_id)).fetchall()) or None

        wait_for(look, f"the note that the success of {task_id} was heard", PATIENCE)

    def clear(self, *task_ids: str, **options: Any) -> None:
        """Clear tasks."""
        self.client.clear(self.dag_id, self.run_id, *task_ids, **options)

    def held(self) -> int:
        """Wait until the task is held; give its pid."""
        line = wait_for(
            lambda: next((line for line in self.lines if line.startswith("held")), None), "a held task", PATIENCE
        )
        return int(line.split()[1])

    def signs(self, task_id: str = "work") -> list[str]:
        """What the ledger took each attempt for."""
        with psycopg.connect(self.stack.postgres.dsn()) as connection:
            rows = connection.execute(
                "select sign::text from aiflow.attempt join aiflow.execution using (execution_id) "
                "where run_id = %s and dag_id = %s and task_id = %s order by attempt.fence",
                (self.run_id, self.dag_id, task_id),
            ).fetchall()
        return [sign for (sign,) in rows]


@pytest.fixture(scope="module")
def runs(airflow_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Situation]:
    """Start every run that the tests want, at once."""
    client = airflow_stack.airflow.client()
    for dag_id in ("cleared", "cleared_chain", "cleared_list"):
        client.wait_for_dag(dag_id)

    def start(dag_id: str, name: str, **conf: Any) -> Situation:
        folder = tmp_path_factory.mktemp(name)
        folder.chmod(0o777)
        (folder / "list.txt").write_text("a b c")
        run_id = client.trigger(dag_id, {"folder": str(folder), **conf})
        return Situation(airflow_stack, client, dag_id, run_id, folder)

    return {
        "chain": start("cleared_chain", "chain"),
        "running": start("cleared", "running", hold=True),
        "running, fresh": start("cleared", "running-fresh", hold=True, aiflow={"on_clear": "fresh"}),
        "marked": start("cleared", "marked", hold=True),
        "success": start("cleared", "success"),
        "failed": start("cleared", "failed", fail=[1, 2]),
        "made again": start("cleared", "made-again"),
        "list": start("cleared_list", "list"),
    }


def gone(pid: int) -> Callable[[], bool | None]:
    return lambda: True if start_time(pid) is None else None


def test_an_automatic_retry_and_a_clear_of_what_failed_resume(runs: dict[str, Situation]) -> None:
    run = runs["failed"]
    run.ended("failed")
    assert run.attempts() == [(1, 1), (2, 1)]
    run.clear("work")
    run.ended("success")
    assert run.attempts() == [(1, 1), (2, 1), (3, 1)]
    assert (run.count("step"), run.count("effect")) == (1, 1)
    assert run.signs() == ["first", "retry", "cleared"]


def test_a_clear_of_a_success_begins_a_generation_and_two_clears_begin_one(runs: dict[str, Situation]) -> None:
    run = runs["success"]
    run.ended("success")
    run.heard()
    run.clear("work")
    run.ended("success")
    assert run.attempts() == [(1, 1), (2, 2)]
    run.heard()
    run.clear("work")
    run.clear("work")
    run.ended("success")
    generations = [generation for _, generation in run.attempts()]
    # The second clear may come before the attempt of the first began, or while it is at work; it never saw a success.
    assert generations[:3] == [1, 2, 3]
    assert set(generations[3:]) <= {3}
    assert run.count("step") in (3, 4)
    assert run.count("effect") == 1, "an effect never depends on the sign"


@pytest.mark.parametrize(("name", "generation"), [("running", 1), ("running, fresh", 2)])
def test_a_clear_while_running_resumes_unless_the_run_says_fresh(
    runs: dict[str, Situation], name: str, generation: int
) -> None:
    run = runs[name]
    pid = run.held()
    run.clear("work")
    wait_for(gone(pid), "the end of the cleared process", PATIENCE)
    run.ended("success")
    assert run.attempts() == [(1, 1), (2, generation)]
    assert (run.count("step"), run.count("effect")) == (generation, 1)


def test_marked_failed_and_then_cleared_resumes(runs: dict[str, Situation]) -> None:
    run = runs["marked"]
    pid = run.held()
    run.client.set_state(run.dag_id, run.run_id, "work", "failed")
    wait_for(gone(pid), "the end of the marked process", PATIENCE)
    run.clear("work")
    run.ended("success")
    assert run.attempts() == [(1, 1), (2, 1)]
    assert (run.count("step"), run.count("effect")) == (1, 1)


def test_a_run_made_again_begins_a_generation_and_keeps_its_effects(runs: dict[str, Situation]) -> None:
    run = runs["made again"]
    run.ended("success")
    run.client.delete_run(run.dag_id, run.run_id)
    run.client.trigger(run.dag_id, {"folder": str(run.folder)}, run_id=run.run_id)
    run.ended("success")
    assert run.attempts() == [(1, 1), (2, 2)]
    assert (run.count("step"), run.count("effect")) == (2, 1)
    assert run.signs() == ["first", "made_again"]


def test_below_the_top_of_a_clear_steps_replay(runs: dict[str, Situation]) -> None:
    run = runs["chain"]
    run.ended("success")
    run.heard("below")
    run.clear("top", include_downstream=True)
    run.ended("success")
    assert (run.attempts("top"), run.attempts("below")) == ([(1, 1), (2, 2)], [(1, 1), (2, 1)])
    assert [run.count("step", task_id) for task_id in ("top", "below")] == [2, 1]
    run.heard("below")
    run.clear("below")
    run.ended("success")
    assert run.attempts("below")[-1] == (3, 2), "alone it is the top of its clear"
    assert [run.count("effect", task_id) for task_id in ("top", "below")] == [1, 1]


def test_a_list_that_shifted_above_a_mapped_task_costs_one_step(runs: dict[str, Situation]) -> None:
    """C14: each map index holds another item after the clear, and one index is new."""
    run = runs["list"]
    run.ended("success")
    (run.folder / "list.txt").write_text("z a b c")
    run.clear("listed", include_downstream=True)
    run.ended("success")
    assert sorted(run.attempts("one")) == [(1, 1)] * 4 + [(2, 1)] * 3
    assert {item: run.count("step", item) for item in "zabc"} == dict.fromkeys("zabc", 1)


def test_the_rest_api_gives_the_same_evidence(runs: dict[str, Situation], airflow_stack: Stack) -> None:
    run = runs["chain"]
    run.ended("success")
    value = airflow_stack.environment["AIRFLOW_CONN_AIFLOW_API"]
    with closing(api_of("the stack's", **connection_fields(value, "the stack's"))) as api:
        rows = list(api.task_instances(run.dag_id, run.run_id))
    [top] = [row for row in rows if row["task_id"] == "top"]
    with psycopg.connect(airflow_stack.postgres.dsn()) as connection:
        [(digest,)] = connection.execute(
            "select upstream_digest from aiflow.attempt join aiflow.execution using (execution_id) "
            "where run_id = %s and task_id = 'below' order by attempt.fence desc limit 1",
            (run.run_id,),
        ).fetchall()
    assert digest == digest_upstream([("top", top["map_index"], top["duration"])])


def test_the_command_line_previews_and_wishes(
    runs: dict[str, Situation],
    airflow_stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = runs["failed"]
    run.ended("success")
    run.heard()
    for name in ("AIRFLOW_CONN_AIFLOW_API", "AIRFLOW_CONN_AIFLOW_LEDGER"):
        monkeypatch.setenv(name, airflow_stack.environment[name])

    def aiflow(*words: str) -> Any:
        assert main(["runs", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    name = f"{run.dag_id}/{run.run_id}"
    [task] = aiflow("clear", name, "--preview", "--resume")["tasks"]
    assert (task["verdict"], task["effects_kept"]) == ("succeeded -> resume", {"mail": 1})
    assert aiflow("clear", name, "--task", "work", "--resume")["cleared"] == [["work", -1]]
    run.ended("success")
    assert run.attempts()[-1] == (4, 1), "a success that was seen, and yet a wish to resume"
    [shown] = aiflow("show", name)["executions"]
    assert (shown["attempt"], shown["generation"], shown["steps"]) == (4, 1, 1)
    run.heard()
    aiflow("clear", name, "--fresh")
    run.ended("success")
    assert run.attempts()[-1] == (5, 2)
    assert (run.count("step"), run.count("effect")) == (2, 1)
