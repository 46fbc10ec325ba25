"""`aiflow effects compensate` on a real ledger: by a function that a person names, or by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.testing import DurableTask

REFUNDS = """
from pathlib import Path

def refund(intent, result):
    with Path(__file__).with_name("refunded").open("a") as file:
        file.write(f"{intent.idempotency_key} {intent.request['cents']} {result}\\n")

def lose(intent, result):
    refund(intent, result)
    raise ConnectionResetError("cut")

nothing = 7
"""


def pay(cents: int) -> str:
    return f"ch_{cents}"


@dataclass
class Desk:
    """Somebody at a shell, in a folder of his own."""

    folder: Path
    dsn: str
    ledger: PostgresLedger

    def task(self) -> tuple[DurableTask, str]:
        """Have a task pay; give it and its key."""
        key = f"order/{uuid4()}"
        task = DurableTask(ledger=self.ledger, clock=SystemClock(), run_id=str(uuid4()))
        self.pay(task, key)
        return task, key

    def pay(self, task: DurableTask, key: str) -> Any:
        """Run the task."""
        return task.run(lambda flow: flow.effect("pay", pay, 1200, key=key))

    def paid(self) -> EffectRecord:
        """Have a task pay, and give the effect."""
        return self.effect(self.task()[1])

    def effect(self, key: str, name: str = "pay") -> EffectRecord:
        """Read an effect."""
        found = self.ledger.effect(EffectId("dag:dag", name, key))
        assert found is not None
        return found

    def start(self, number: int, *words: str, armed: str | None = None) -> subprocess.Popen[str]:
        """Type a command."""
        environment = {**os.environ, "AIFLOW_FAILPOINT": armed or ""}
        command = [sys.executable, "-m", "airflow_aiflow.cli", "effects", "compensate", str(number), *words]
        command += ["--dsn", self.dsn, "--home", str(self.folder), "--by", "ann", "--json"]
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __call__(self, number: int, *words: str, armed: str | None = None) -> tuple[int, Any, str]:
        """Type a command and read what comes of it."""
        process = self.start(number, *words, armed=armed)
        said, complained = process.communicate(timeout=90)
        lines = said.splitlines()
        return process.returncode, json.loads(lines[-1]) if lines else None, said + complained

    @property
    def refunded(self) -> list[str]:
        """What the target saw."""
        path = self.folder / "refunded"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    """Give an upgraded ledger for the role that tasks use."""
    owner = postgres_server.fresh_database("undo")
    migrate.upgrade(owner)
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))


@pytest.fixture
def desk(tmp_path: Path, dsn: str) -> Iterator[Desk]:
    """Give a shell with the author's module in its folder."""
    (tmp_path / "refunds.py").write_text(REFUNDS)
    with closing(PostgresLedger.connect(dsn)) as ledger:
        yield Desk(tmp_path, dsn, ledger)


WHY = ("--reason", "wrong customer")


def test_a_function_that_the_person_names_takes_it_back_once(desk: Desk) -> None:
    task, key = desk.task()
    number = desk.effect(key).number
    code, said, complained = desk(number, "--function", "refunds:refund", *WHY)
    assert (code, said["counts"], said["by"]) == (0, True, "ann"), complained
    [line] = desk.refunded
    assert line.split()[1:] == ["1200", "ch_1200"]
    undo = desk.effect(key, "pay/undo")
    assert undo.request.inline is not None
    for word in (b"ann", b"wrong customer", b"refunds.refund", line.split()[0].encode()):
        assert word in undo.request.inline
    code, said, _ = desk(number, "--function", "refunds:refund", *WHY)
    assert (code, "taken back already" in said["why"]) == (1, True)
    assert len(desk.refunded) == 1
    task.cleared()
    desk.pay(task, key)
    assert (desk.effect(key).state, desk.effect(key).repeat) == ("succeeded", 1)
    code, said, _ = desk(number, "--function", "refunds:refund", *WHY)
    assert (code, f"that is #{desk.effect(key).number}" in said["why"]) == (1, True)


def test_by_hand_nothing_is_called_and_the_effect_is_taken_back(desk: Desk) -> None:
    found = desk.paid()
    code, _, complained = desk(found.number, "--by-hand", *WHY)
    assert code == 0, complained
    assert desk.effect(found.effect.key).state == "compensated"
    undo = desk.effect(found.effect.key, "pay/undo")
    assert undo.request.inline is not None
    assert b"by_hand" in undo.request.inline


def test_one_of_unknown_outcome_is_in_doubt_until_a_person_says(desk: Desk) -> None:
    found = desk.paid()
    for _ in range(2):
        code, said, _ = desk(found.number, "--function", "refunds:lose", *WHY)
        assert (code, "aiflow effects resolve" in said["why"]) == (1, True)
    assert len(desk.refunded) == 1
    undo = desk.effect(found.effect.key, "pay/undo")
    with closing(PostgresInbox.connect(desk.dsn)) as inbox:
        assert undo.number in [entry.number for entry in inbox.waiting()]
        assert inbox.resolve(undo.number, "happened", by="ann").counts
    assert desk(found.number, "--function", "refunds:lose", *WHY)[0] == 0
    assert len(desk.refunded) == 1
    assert desk.effect(found.effect.key).state == "compensated"


@pytest.mark.parametrize(("site", "refunded"), [("after_intent", 0), ("after_act", 1)])
def test_killed_in_the_middle_it_is_not_taken_back_twice(desk: Desk, site: str, refunded: int) -> None:
    found = desk.paid()
    code, _, _ = desk(found.number, "--function", "refunds:refund", *WHY, armed=f"{site}@pay/undo")
    assert code == -signal.SIGKILL
    code, said, complained = desk(found.number, "--function", "refunds:refund", *WHY)
    assert (code, "has no outcome" in said["why"]) == (1, True), complained
    assert len(desk.refunded) == refunded
    assert desk.effect(found.effect.key).state == "succeeded"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--function", "refunds", *WHY), "module:name"),
        (("--function", "refunds:gone", *WHY), "gone"),
        (("--function", "refunds:nothing", *WHY), "no function"),
        (("--function", "no_such_module_x:f", *WHY), "no_such_module_x"),
        (("--function", "refunds:refund"), "--reason is needed"),
        (WHY, "--by-hand"),
        (("--by-hand", "--function", "refunds:refund", *WHY), "not allowed"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_changed(desk: Desk, words: tuple[str, ...], says: str) -> None:
    found = desk.paid()
    code, _, complained = desk(found.number, *words)
    assert code in (1, 2)
    assert says in complained
    assert (desk.effect(found.effect.key).state, desk.refunded) == ("succeeded", [])


def test_a_number_of_nobody_and_an_undo_s_own_are_findings(desk: Desk) -> None:
    code, said, _ = desk(999_999_999, "--by-hand", *WHY)
    assert (code, said["why"]) == (1, "there is no #999999999 in this ledger")
    found = desk.paid()
    desk(found.number, "--by-hand", *WHY)
    code, said, _ = desk(desk.effect(found.effect.key, "pay/undo").number, "--by-hand", *WHY)
    assert (code, "itself an undo" in said["why"]) == (1, True)
