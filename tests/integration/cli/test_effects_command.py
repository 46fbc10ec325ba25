"""`aiflow effects ...` on a real ledger: what people read, what their words do, and what is refused."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.cli import api_address, ledger_address
from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.durable.effect import EffectRecord, Intended
from airflow_aiflow.durable.execution import ExecutionState, Taken
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import DID_NOT_HAPPEN, FAIL, HAPPENED, Question
from airflow_aiflow.durable.payload import decode, encode
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from tests.contract.ledger_world import a_question, an_effect, an_intent, start

DOUBT_OPTIONS = (HAPPENED, DID_NOT_HAPPEN, FAIL)

REQUEST = encode(
    {
        "function": "jobs.pay",
        "args": [4711, {"iban": "DE17", "password": "hunter2"}],
        "kwargs": {"cents": 1200},
        "prints": {"number": "00", "to": "01", "cents": "02"},
        "keyed": True,
    }
).data


@dataclass
class Desk:
    """Somebody at a shell, and a ledger in which things happen."""

    ledger: PostgresLedger
    dsn: str
    home: Path
    read: Callable[[], tuple[str, str]]
    said: str = field(default="", init=False)
    complained: str = field(default="", init=False)

    def __call__(self, *words: str) -> int:
        """Type a command."""
        try:
            code = main(["effects", *words, "--dsn", self.dsn, "--home", str(self.home)])
        except SystemExit as error:
            code = int(str(error.code))
        self.said, self.complained = self.read()
        return code

    def json(self, *words: str) -> Any:
        """Type a command and read its JSON."""
        self(*words, "--json")
        return json.loads(self.said)

    def doubt(self, **parts: Any) -> tuple[Taken, EffectRecord]:
        """Have a call end without an outcome that is known."""
        taken, effect = start(self.ledger, **parts), an_effect()
        intent = an_intent(effect, request=REQUEST)
        assert isinstance(self.ledger.intend(taken.lease, intent), Intended)
        assert self.ledger.doubt(taken.lease, intent.intent_id)
        return taken, self.effect(effect)

    def asked(self, taken: Taken, found: EffectRecord) -> Question:
        """Have the task wait for word on it."""
        question = self.ledger.ask(
            taken.lease, a_question(found.effect, found.intent_id, options=DOUBT_OPTIONS, timeout=7200.0)
        )
        assert self.ledger.finish(taken.lease, ExecutionState.PAUSED, result=None, reason="waits")
        return question

    def effect(self, effect: EffectId) -> EffectRecord:
        """Read an effect."""
        found = self.ledger.effect(effect)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def address(postgres_server: PostgresServer) -> str:
    """Give an upgraded ledger, for the role of tasks."""
    owner = postgres_server.fresh_database("effects")
    migrate.upgrade(owner)
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))


@pytest.fixture
def desk(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """Give a shell that knows no Airflow."""
    for name in (ledger_address.VARIABLE, api_address.VARIABLE):
        monkeypatch.delenv(name, raising=False)

    def read() -> tuple[str, str]:
        found = capsys.readouterr()
        return found.out, found.err

    with closing(PostgresLedger.connect(address)) as ledger:
        yield Desk(ledger, address, tmp_path, read)


# --- list and show ---


def test_what_waits_is_a_finding_with_all_that_one_needs(desk: Desk) -> None:
    taken, found = desk.doubt()
    desk.asked(taken, found)
    run = found.execution.run_id
    assert desk("list", "--in-doubt", "--run", run) == 1
    head, begun, waits = desk.said.splitlines()[:3]
    assert head.startswith(f"#{found.number}  IN DOUBT  charge  {found.effect.key}  since 20")
    assert f"begun by attempt 1 of task pay of billing, run {run} on " in begun
    assert begun.endswith(("its process is presumed gone", "its process is at work"))
    assert waits.strip() == f"a task waits for it, for 2.0 h more: task pay of billing, run {run}"
    [entry] = desk.json("list", "--in-doubt", "--key", found.effect.key)["waiting"]
    assert (entry["number"], entry["task_waits"], entry["effect"]["state"]) == (found.number, True, "in_doubt")
    assert entry["question"]["options"] == list(DOUBT_OPTIONS)


def test_what_nobody_will_visit_says_so(desk: Desk) -> None:
    _, found = desk.doubt()
    assert desk("list", "--in-doubt", "--run", found.execution.run_id) == 1
    assert "no task waits for it: after your word, clear the task" in desk.said


def test_nothing_that_waits_is_fine(desk: Desk) -> None:
    assert desk("list", "--in-doubt", "--dag", "no such DAG") == 0
    assert desk.said == "nothing waits for a person\n"
    assert desk("list", "--dag", "no such DAG") == 0
    assert desk.said == "no effects\n"


def test_effects_are_listed_by_what_they_are(desk: Desk) -> None:
    _, found = desk.doubt()
    desk.doubt()
    ids = found.execution
    for words in (("--key", found.effect.key), ("--run", ids.run_id), ("--dag", "billing", "--run", ids.run_id)):
        [one] = desk.json("list", *words)["effects"]
        assert (one["number"], one["name"], one["run_id"], one["map_index"]) == (
            found.number,
            "charge",
            ids.run_id,
            None,
        )
    assert desk("list", "--limit", "1", "--after", str(found.number - 1)) == 0
    assert desk.said.startswith(f"#{found.number}  in doubt  charge")
    assert f"--after {found.number}" in desk.said


def test_a_mapped_task_is_listed_with_its_index(desk: Desk) -> None:
    _, found = desk.doubt(map_index=3)
    [one] = desk.json("list", "--run", found.execution.run_id)["effects"]
    assert one["map_index"] == 3


def test_show_gives_request_key_and_history(desk: Desk) -> None:
    _, found = desk.doubt()
    desk("resolve", str(found.number), "--did-not-happen", "--by", "ada", "--reason", "not at the bank")
    assert desk("show", f"#{found.number}") == 0
    assert "jobs.pay(" in desk.said
    assert "number=4711" in desk.said
    assert "cents=1200" in desk.said
    assert "hunter2" not in desk.said
    assert "idempotency key  af_" in desk.said
    assert "no outcome; ada at 20" in desk.said
    assert ": did not happen (not at the bank)" in desk.said
    shown = desk.json("show", str(found.number))
    assert shown["effect"]["request"]["arguments"] == {
        "number": 4711,
        "to": {"iban": "DE17", "password": "***"},
        "cents": 1200,
    }
    [intent] = shown["effect"]["intents"]
    assert (intent["number"], intent["decision"], intent["decided_by"], intent["note"]) == (
        found.number,
        "did_not_happen",
        "ada",
        "not at the bank",
    )


def test_show_gives_a_question(desk: Desk) -> None:
    taken, found = desk.doubt()
    question = desk.asked(taken, found)
    assert desk("show", str(question.number)) == 0
    assert "Look at the target first." in desk.said
    assert "( ) It did not happen: run it" in desk.said


def test_an_encrypted_request_is_shown_where_the_keys_are(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.fernet import Fernet

    from airflow_aiflow.storage.payload_cipher import PayloadCipher

    key = Fernet.generate_key()
    taken, effect = start(desk.ledger), an_effect()
    locked = PayloadCipher([key]).lock(REQUEST)
    desk.ledger.intend(taken.lease, an_intent(effect, request=locked))
    number = str(desk.effect(effect).number)
    assert desk("show", number) == 0
    assert "not readable here" in desk.said
    assert "4711" not in desk.said.replace(str(desk.effect(effect).owner.pid), "")
    monkeypatch.setenv("AIRFLOW__AIFLOW__PAYLOAD_KEYS", key.decode())
    assert desk("show", number) == 0
    assert "number=4711" in desk.said


@pytest.mark.parametrize("by", ["call", "question"])
def test_a_result_is_encrypted_where_the_request_is(desk: Desk, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    from cryptography.fernet import Fernet

    from airflow_aiflow.storage.payload_cipher import PayloadCipher

    cipher = PayloadCipher([key := Fernet.generate_key()])
    taken, effect = start(desk.ledger), an_effect()
    intent = an_intent(effect, request=cipher.lock(REQUEST))
    desk.ledger.intend(taken.lease, intent)
    desk.ledger.doubt(taken.lease, intent.intent_id)
    found = desk.effect(effect)
    number = found.number if by == "call" else desk.asked(taken, found).number
    words = ("resolve", str(number), "--happened", "--result", '"private"')
    assert desk(*words) == 1
    assert "AIRFLOW__AIFLOW__PAYLOAD_KEYS" in desk.complained
    assert desk.effect(effect).state == "in_doubt"
    monkeypatch.setenv("AIRFLOW__AIFLOW__PAYLOAD_KEYS", key.decode())
    assert desk(*words) == 0
    stored = desk.effect(effect).result
    assert stored is not None
    assert stored.inline is not None
    assert b"private" not in stored.inline
    assert decode(cipher.open(stored.inline, "it")) == "private"


def test_an_unknown_number_is_a_finding(desk: Desk) -> None:
    assert desk("show", "999999999") == 1
    assert "#999999999 is nothing in this ledger" in desk.complained


# --- words ---


def test_it_happened_with_a_result(desk: Desk, tmp_path: Path) -> None:
    taken, found = desk.doubt()
    desk.asked(taken, found)
    (tmp_path / "result.json").write_text('{"id": "ch_1", "n": [1, null]}')
    assert desk("resolve", str(found.number), "--happened", "--result", f"@{tmp_path / 'result.json'}") == 0
    assert desk.said.startswith(f"#{found.number}: happened (by {getpass.getuser()}); the task pay of billing")
    assert "looks into the inbox by itself" in desk.said
    now = desk.effect(found.effect)
    assert (now.state, now.decided_by) == ("succeeded", getpass.getuser())
    assert now.result is not None
    assert now.result.inline is not None
    assert decode(now.result.inline) == {"id": "ch_1", "n": [1, None]}


@pytest.mark.parametrize(("given", "stored"), [("null", Stored(inline=b"null")), (None, None)])
def test_null_is_a_result_and_no_result_is_none(desk: Desk, given: str | None, stored: Stored | None) -> None:
    _, found = desk.doubt()
    assert desk("resolve", str(found.number), "--happened", *(["--result", given] if given else [])) == 0
    assert desk.effect(found.effect).result == stored


@pytest.mark.parametrize("result", ["{'id': 1}", "NaN", "sent", "@/no/such/file", ""])
def test_a_result_that_is_not_json_changes_nothing(desk: Desk, result: str) -> None:
    _, found = desk.doubt()
    assert desk("resolve", str(found.number), "--happened", "--result", result) == 2
    assert "--result" in desk.complained
    assert desk.effect(found.effect).state == "in_doubt"


def test_a_result_that_can_not_be_stored_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    _, found = desk.doubt()
    (tmp_path / "large.json").write_text(f'"{"x" * 1024**2}"')
    assert desk("resolve", str(found.number), "--happened", "--result", f"@{tmp_path / 'large.json'}") == 1
    assert "1,048,578 bytes" in desk.complained
    assert desk("resolve", str(found.number), "--happened", "--result", '"\\ud800"') == 1
    assert "surrogate" in desk.complained
    assert desk.effect(found.effect).state == "in_doubt"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--happened", "--did-not-happen"),
        ("--did-not-happen", "--result", "1"),
        ("--happened", "--by", " "),
    ],
    ids=["no word", "two words", "a result of nothing", "nobody"],
)
def test_half_a_word_is_refused(desk: Desk, words: tuple[str, ...]) -> None:
    _, found = desk.doubt()
    assert desk("resolve", str(found.number), *words) == 2
    assert desk.effect(found.effect).state == "in_doubt"


def test_who_comes_second_is_told_who_was_first(desk: Desk) -> None:
    _, found = desk.doubt()
    number = str(found.number)
    assert desk("resolve", number, "--did-not-happen", "--by", "ada") == 0
    assert "no task waits for it: clear the task pay of billing" in desk.said
    for by in ("bob", "ada"):
        told = desk.json("resolve", number, "--happened", "--by", by)
        assert told["counts"] is False
        assert "answered by ada at 20" in told["why"]
        assert told["why"].endswith("UTC: did not happen")
    assert desk("resolve", number, "--did-not-happen", "--by", "ada") == 1
    assert desk.effect(found.effect).state == "failed"


def test_what_is_not_in_doubt_takes_no_word(desk: Desk) -> None:
    taken, effect = start(desk.ledger), an_effect()
    intent = an_intent(effect)
    desk.ledger.intend(taken.lease, intent)
    number = str(desk.effect(effect).number)
    assert desk("resolve", number, "--happened") == 1
    assert "may be at work" in desk.said
    desk.ledger.settle(intent.intent_id, "succeeded", result=None)
    assert desk("resolve", number, "--did-not-happen") == 1
    assert "has an outcome since" in desk.said
    assert desk.effect(effect).state == "succeeded"


def test_the_waiting_task_shall_fail_and_the_doubt_stays(desk: Desk) -> None:
    taken, found = desk.doubt()
    assert desk("resolve", str(found.number), "--fail") == 1
    assert "no task waits" in desk.said
    question = desk.asked(taken, found)
    assert desk("resolve", str(found.number), "--fail", "--by", "ada") == 0
    assert desk.effect(found.effect).state == "in_doubt"
    assert desk.json("show", str(question.number))["question"]["answer"]["option"] == "Fail the task"


def test_a_question_is_answered_by_the_beginning_of_an_option(desk: Desk) -> None:
    taken = start(desk.ledger)
    question = desk.ledger.ask(taken.lease, a_question())
    number = str(question.number)
    assert desk("answer", number, "maybe") == 1
    assert "takes one of 'Approve', 'Reject'" in desk.complained
    assert desk("answer", number, "app", "--by", "ada", "--note", "fine") == 0
    assert desk.json("show", number)["question"]["answer"] | {"at": ""} == {
        "option": "Approve",
        "by": "ada",
        "at": "",
        "note": "fine",
    }
    assert desk("answer", number, "Reject", "--by", "bob") == 1
    assert "was answered by ada" in desk.said


def test_the_options_of_a_doubt_are_words_on_its_call(desk: Desk) -> None:
    taken, found = desk.doubt()
    question = desk.asked(taken, found)
    assert desk("answer", str(question.number), "It happened") == 0
    assert desk.effect(found.effect).state == "succeeded"
    assert desk("answer", str(found.number), "It happened") == 1
    assert f"aiflow effects resolve {found.number}" in desk.complained


def test_a_release_needs_a_reason_and_a_done_effect(desk: Desk) -> None:
    _, found = desk.doubt()
    number = str(found.number)
    assert desk("release", number) == 2
    assert desk("release", number, "--reason", "again") == 1
    assert "is in doubt" in desk.said
    desk("resolve", number, "--happened")
    assert desk("release", number, "--reason", "the mail was wrong", "--by", "ada") == 0
    assert "may be done once more: clear the task pay of billing" in desk.said
    assert desk.effect(found.effect).state == "released"
    assert desk("release", number, "--reason", "again", "--by", "bob") == 1
    assert "was released by ada" in desk.said
    desk("show", number)
    assert "released by ada at 20" in desk.said
    assert "(the mail was wrong)" in desk.said


@pytest.mark.parametrize(
    "words", [(), ("show",), ("show", "x"), ("show", "0"), ("list", "--limit", "-1"), ("undo", "1")]
)
def test_a_wrong_command_line(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk(*words) == 2


def test_as_people_run_it(address: str, tmp_path: Path) -> None:
    environment = {**os.environ, ledger_address.VARIABLE: address}
    command = [sys.executable, "-m", "airflow_aiflow.cli", "effects", "list", "--json", "--home", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout)["effects"], list)
