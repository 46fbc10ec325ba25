"""
A person is asked in a real Airflow: in its form, by the command line, twice, by two at once, and too quickly.

All runs are started together, for most of the time goes by in waiting.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.cli import ledger_address
from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.inbox import InboxEntry
from airflow_aiflow.hooks.waiting_task import SAFE_AFTER
from airflow_aiflow.local.airflow_client import AirflowApiError, AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from tests.unit.source_tree import ROOT

EXAMPLES = ROOT / "dags" / "examples"

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 90.0

#: Which DAG each run of this module is of.
RUNS = {
    "form": "in_doubt",
    "cli": "in_doubt",
    "second": "in_doubt",
    "fail": "in_doubt",
    "quick": "in_doubt",
    "twice": "two_questions",
    "refund": "ask",
    "found": "reconcile",
}

#: The only task of each DAG.
TASKS = {"in_doubt": "pay", "two_questions": "work", "ask": "refund", "reconcile": "record"}

#: Further conf of a run.
CONF: dict[str, dict[str, Any]] = {"refund": {"order": "1"}, "found": {"crash": True}}


@dataclass(frozen=True)
class Run:
    """One run whose only task asks, and the file in which it counts."""

    stack: Stack
    client: AirflowClient
    dag_id: str
    run_id: str
    folder: Path

    @property
    def task_id(self) -> str:
        """Give the only task."""
        return TASKS[self.dag_id]

    @property
    def lines(self) -> list[str]:
        """What the task has written so far."""
        file = self.folder / "count.txt"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def acted(self) -> int:
        """How often the effect was applied."""
        return len([line for line in self.lines if line.startswith("acted")])

    def task(self, *states: str) -> dict[str, Any]:
        """Wait until the task has one of some states."""
        found = self.client.wait_for_task(
            self.dag_id, self.run_id, self.task_id, *{*states, "failed", "success"}, timeout=PATIENCE
        )
        assert found["state"] in states, self.log()
        return found

    def form(self) -> dict[str, Any]:
        """Give Airflow's form."""
        found: dict[str, Any] = self.client.request("GET", self._form_path)
        return found

    def choose(self, beginning: str) -> None:
        """Answer in Airflow's form."""
        [option] = [one for one in self.form()["options"] if one.startswith(beginning)]
        self.client.request("PATCH", self._form_path, body={"chosen_options": [option], "params_input": {}})

    def parked_for_good(self) -> None:
        """Wait until Airflow has surely heard of the parked process's end."""
        self.task("awaiting_input")
        since = dt.datetime.fromisoformat(self.form()["created_at"]) + dt.timedelta(seconds=SAFE_AFTER)
        wait_for(lambda: True if dt.datetime.now(dt.UTC) > since else None, "time", PATIENCE)

    def cli(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Give a word by the command line."""
        environment = {name: value for name, value in os.environ.items() if name != ledger_address.VARIABLE}
        command = [sys.executable, "-m", "airflow_aiflow.cli", "effects", *words, "--json"]
        command += ["--home", str(self.stack.home)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment, cwd=self.folder
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def ended(self) -> str:
        """Wait for the end of the run."""
        return self.client.wait_for_run(self.dag_id, self.run_id, PATIENCE)

    def log(self) -> str:
        """Give the logs of all tries."""
        tries = self.client.tries(self.dag_id, self.run_id, self.task_id)
        return "\n".join(self.client.logs(self.dag_id, self.run_id, self.task_id, each["try_number"]) for each in tries)

    def effect(self) -> EffectRecord:
        """Read the effect in the ledger."""
        with closing(PostgresInbox.connect(self.stack.postgres.dsn())) as inbox:
            [found] = inbox.effects(run_id=self.run_id)
        return found

    @property
    def _form_path(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{self.task_id}/-1/hitlDetails"


@pytest.fixture(scope="module")
def runs(airflow_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Give runs whose tasks begin to ask."""
    client = airflow_stack.airflow.client()
    for example in EXAMPLES.glob("*.py"):
        shutil.copy(example, airflow_stack.plan.dags_folder)
    for dag_id in TASKS:
        client.wait_for_dag(dag_id)
    made = {}
    for name, dag_id in RUNS.items():
        folder = tmp_path_factory.mktemp(name)
        folder.chmod(0o777)
        conf = CONF.get(name, {"folder": str(folder)})
        run_id = client.trigger(dag_id, conf, run_id=f"asking_{name}")
        made[name] = Run(airflow_stack, client, dag_id, run_id, folder)
    return made


def test_an_answer_that_airflow_loses_is_read_back(runs: dict[str, Run]) -> None:
    """Whether it is lost is chance; that the effect follows the answer, once, is not."""
    run = runs["quick"]
    run.task("awaiting_input")
    run.choose("It did not happen")
    assert run.ended() == "success"
    assert run.acted == 2
    assert (run.effect().state, run.effect().decided_by) == ("succeeded", None)
    [decided] = [intent for intent in history(run) if intent.decision]
    assert (decided.decision, decided.decided_by) == ("did_not_happen", "admin")


def test_a_doubt_is_asked_and_answered_in_airflows_form(runs: dict[str, Run]) -> None:
    run = runs["form"]
    run.parked_for_good()
    form, number = run.form(), run.effect().number
    assert form["subject"] == f'Did "pay" happen?  pay/{run.run_id}'
    assert [option.rpartition(" ")[2] for option in form["options"]] == [f"(#{number})"] * 3
    assert "verified dead" in form["body"]
    assert "Look at the target first" in form["body"]
    assert run.acted == 1
    run.choose("It did not happen")
    assert run.ended() == "success"
    assert run.acted == 2
    assert run.task("success")["try_number"] == 2
    told = run.log()
    assert "it is asked under Required Actions, and the slot goes back" in told
    assert f"#{number} is answered by admin: did_not_happen" in told
    [decided, done] = history(run)
    assert (decided.decided_by, decided.outcome, done.outcome) == ("admin", None, "succeeded")


def test_a_doubt_is_answered_by_the_command_line(runs: dict[str, Run]) -> None:
    run = runs["cli"]
    run.task("awaiting_input")
    number = str(run.effect().number)
    code, told = run.cli("resolve", number, "--happened", "--result", '"by hand"', "--by", "ada", "--reason", "seen")
    assert (code, told["counts"], told["next"]) == (0, True, "the waiting task goes on now")
    assert run.ended() == "success"
    assert run.acted == 1
    assert run.client.xcom(run.dag_id, run.run_id, "pay") == "by hand"
    assert run.task("success")["try_number"] == 2
    code, told = run.cli("resolve", number, "--did-not-happen", "--by", "bob")
    assert (code, told["counts"]) == (1, False)
    assert "answered by ada at" in told["why"]
    with pytest.raises(AirflowApiError, match="409"):
        run.choose("It did not happen")
    assert run.acted == 1


def test_who_comes_second_in_the_form_is_told_who_was_first(runs: dict[str, Run]) -> None:
    run = runs["second"]
    run.parked_for_good()
    number = run.effect().number
    with closing(PostgresInbox.connect(run.stack.postgres.dsn())) as inbox:
        assert inbox.resolve(number, "happened", by="ada").counts
    run.choose("It did not happen")
    assert run.ended() == "success"
    assert run.acted == 1
    told = run.log()
    assert f"the answer of admin to #{number} does not count" in told
    assert "answered by ada at" in told


def test_the_task_shall_fail_and_the_doubt_stays(runs: dict[str, Run]) -> None:
    run = runs["fail"]
    run.task("awaiting_input")
    number = str(run.effect().number)
    assert run.cli("resolve", number, "--fail", "--by", "ada")[1]["next"] == "the waiting task goes on now"
    assert run.ended() == "failed"
    assert run.acted == 1
    assert run.task("failed")["try_number"] == 2, "no retry can help"
    assert run.effect().state == "in_doubt"
    assert run.cli("list", "--in-doubt", "--run", run.run_id)[0] == 1


def test_a_second_question_waits_in_the_inbox(runs: dict[str, Run]) -> None:
    run = runs["twice"]
    run.parked_for_good()
    assert run.form()["subject"] == "Which colour?"
    run.choose("Blue")
    parked = run.task("up_for_reschedule")
    number = wait_for(lambda: question_of(run, "size"), "the second question", PATIENCE)
    code, told = run.cli("answer", str(number), "large", "--by", "ada")
    assert (code, told["option"]) == (0, "Large")
    assert "looks into the inbox by itself" in told["next"]
    assert run.ended() == "success"
    assert run.lines == ["began"] * 3 + ["answers Blue by admin, Large by ada"]
    done = run.task("success")
    assert (done["id"], done["try_number"]) == (parked["id"], 1)
    assert "still shows an earlier question" in run.log()


def test_the_example_that_asks(runs: dict[str, Run]) -> None:
    run = runs["refund"]
    run.task("awaiting_input")
    assert run.form()["subject"] == "Pay 118.00 back for order 1?"
    [number] = [entry.number for entry in waiting(run)]
    assert run.cli("answer", str(number), "Refuse", "--by", "ada")[1]["next"] == "the waiting task goes on now"
    assert run.ended() == "success"
    assert run.client.xcom(run.dag_id, run.run_id, "refund") == "refused by ada"


def test_the_example_that_asks_the_target_itself(runs: dict[str, Run]) -> None:
    run = runs["found"]
    assert run.ended() == "success"
    [record] = run.stack.records.records()
    assert run.client.xcom(run.dag_id, run.run_id, "record") == record["id"]
    assert run.task("success")["try_number"] == 2


def waiting(run: Run) -> list[InboxEntry]:
    with closing(PostgresInbox.connect(run.stack.postgres.dsn())) as inbox:
        return [
            entry
            for entry in inbox.waiting()
            if entry.question is not None and entry.question.execution.run_id == run.run_id
        ]


def history(run: Run) -> Any:
    with closing(PostgresInbox.connect(run.stack.postgres.dsn())) as inbox:
        return inbox.intents(run.effect().number)


def question_of(run: Run, name: str) -> int | None:
    return next((entry.number for entry in waiting(run) if entry.question and entry.question.name == name), None)
