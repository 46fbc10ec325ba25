"""The numbers of a run, and what counts as a broken promise."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from airflow_aiflow.demo.outcome import MAX_WORKERS, Kill, Outcome
from airflow_aiflow.demo.screen import Screen

KILLS = (Kill(5, 30, 30, 1, 3.5), Kill(60, 360, 362, 2, 4.25))
GOOD = Outcome(
    state="succeeded", documents=250, skipped=1, pages=600, kills=KILLS, kills_wanted=2, attempts=3, calls_made=858,
    counted_at="model server", emails=1, records=1, seconds=61.234, first_page=14.321, cost=None,
    report="r.html", table="r.csv", ui="http://127.0.0.1:1/", run_id="manual__1",
)  # fmt: skip


def test_what_was_needed_and_what_a_plain_task_would_have_paid() -> None:
    assert GOOD.calls_needed == 850
    assert GOOD.calls_plain == 850 + 30 + 362
    assert GOOD.calls_saved == 850 + 30 + 362 - 858
    assert GOOD.seconds_lost == 7.75
    assert list(GOOD.broken()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "failed"}, "the run ended as failed"),
        ({"kills_wanted": 3}, "2 of 3 kills came in time"),
        ({"calls_made": 850 + 2 * MAX_WORKERS + 1}, "867 model calls were made, where 850 to 866 are right"),
        ({"calls_made": 849}, "849 model calls were made"),
        ({"emails": 0}, "0 e-mails were sent"),
        ({"emails": 2}, "2 e-mails were sent"),
        ({"records": 0}, "0 records were created"),
        ({"records": 2}, "2 records were created"),
    ],
)
def test_a_broken_promise_is_named(change: dict[str, object], message: str) -> None:
    outcome = replace(GOOD, **change)  # type: ignore[arg-type]
    assert [line for line in outcome.broken() if message in line] != []
    shown = io.StringIO()
    Screen(shown).result(outcome)
    assert f"NOT AS PROMISED: {message}" in shown.getvalue()


def test_calls_in_flight_at_the_kills_are_allowed() -> None:
    assert list(replace(GOOD, calls_made=850 + 2 * MAX_WORKERS).broken()) == []


def test_the_json_has_the_words_of_the_documentation() -> None:
    facts = json.loads(json.dumps(GOOD.as_json()))
    assert {
        name: facts[name] for name in ("state", "pages", "kills", "calls_needed", "calls_made", "emails", "records")
    } == {"state": "succeeded", "pages": 600, "kills": 2, "calls_needed": 850, "calls_made": 858, "emails": 1,
          "records": 1}  # fmt: skip
    assert (facts["seconds"], facts["first_page"], facts["seconds_lost"]) == (61.23, 14.32, 7.75)
    assert facts["killed"][0] == {"at": 5, "pages": 30, "calls": 30, "processes": 1, "lost": 3.5, "found": None}
    assert facts["broken"] == []


def test_the_table_is_readable_without_a_terminal() -> None:
    shown = io.StringIO()
    Screen(shown).result(GOOD)
    lines = shown.getvalue().splitlines()
    made = next(line for line in lines if "model calls made" in line)
    assert "858" in made
    assert "1242" in made
    assert "\x1b" not in shown.getvalue()
    assert "report    r.html" in lines
    assert "the answers it had at each kill, 392 in all" in shown.getvalue()
    assert "with --keep both stay" in lines[-1]


LOST = replace(
    GOOD, victim="worker", kills=tuple(replace(kill, found=2.345) for kill in KILLS), kills_wanted=2, attempts=3
)  # fmt: skip


def test_a_killed_worker_is_told_with_when_it_was_found() -> None:
    assert list(LOST.broken()) == []
    assert LOST.as_json()["killed"][0]["found"] == 2.35
    shown = io.StringIO()
    Screen(shown).result(LOST)
    [found] = [line for line in shown.getvalue().splitlines() if "until recovery had found it" in line]
    assert "2.3, 2.3" in found
    assert "about 310" in found
    assert "retries are 0" in shown.getvalue()


def test_a_killed_worker_that_nobody_found_is_a_broken_promise() -> None:
    assert list(replace(LOST, kills=KILLS).broken()) == ["recovery did not find every kill"]


class Terminal(io.StringIO):
    """A terminal that keeps what was shown."""

    def isatty(self) -> bool:
        return True


def test_an_address_is_not_broken_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = Terminal()
    address = f"http://127.0.0.1:10240/dags/document_review/runs/{'manual' * 20}"
    Screen(shown).say(f"run: {address}")
    assert address in shown.getvalue()


def test_nothing_is_said_of_answers_that_a_kill_did_not_cost() -> None:
    shown = io.StringIO()
    Screen(shown).result(replace(GOOD, kills=()))
    assert "A plain task" not in shown.getvalue()


def test_a_real_models_calls_are_named_for_what_they_are() -> None:
    shown = io.StringIO()
    Screen(shown).result(replace(GOOD, counted_at="ledger", cost=0.0123), kept=True)
    assert "model calls recorded (in flight at a kill: 8 more at most)" in shown.getvalue()
    assert "0.0123" in shown.getvalue()
    assert "stand-in" not in shown.getvalue()
    assert "--keep" not in shown.getvalue()


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    shown = io.StringIO()
    with Screen(shown).open(1000) as screen:
        for done in range(1001):
            screen.show(done, "summarising pages")
    lines = shown.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1] == "  summarising pages: 1,000 of 1,000 model calls recorded"
