"""What a requeue that was broken off after its clear left below: it runs again, unless something else keeps it."""

from __future__ import annotations

import pytest

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.exceptions import AirflowRefusedError, AirflowUnavailableError
from airflow_aiflow.recovery.below import make_up
from tests.unit.recovery.doubles import AirflowDouble, LedgerDouble, stalled

LOST = stalled().execution
REPORT, MAIL, OTHER = (ExecutionId("billing", "run", task_id) for task_id in ("report", "mail", "other"))


def broken_off(state: str | None = "running") -> tuple[LedgerDouble, AirflowDouble]:
    """Have ``pay`` back at work, and what comes below it failed."""
    ledger, airflow = LedgerDouble(), AirflowDouble()
    ledger.broken = [(1, 1, LOST)]
    airflow.below = {"pay": ["report"], "report": ["mail"], "mail": [], "other": ["mail"]}
    airflow.put(LOST, state)
    airflow.put(REPORT, "upstream_failed", 2)
    airflow.put(MAIL, "upstream_failed", 3)
    return ledger, airflow


@pytest.mark.parametrize("state", ["running", "queued", None, "deferred", "success"])
def test_what_failed_below_runs_again(state: str | None) -> None:
    ledger, airflow = broken_off(state)
    assert make_up(ledger.port(), airflow.api()) == [REPORT, MAIL]
    assert (airflow.cleared, ledger.broken) == ([["report", "mail"]], [])


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "removed"])
def test_what_failed_again_keeps_it_from_running(state: str) -> None:
    ledger, airflow = broken_off(state)
    assert make_up(ledger.port(), airflow.api()) == []
    assert (airflow.cleared, ledger.broken) == ([], [])


def test_so_does_another_task_that_failed_above() -> None:
    ledger, airflow = broken_off()
    airflow.put(OTHER, "failed", 4)
    assert make_up(ledger.port(), airflow.api()) == [REPORT]


def test_and_a_person() -> None:
    ledger, airflow = broken_off()
    airflow.person("patch_dag_run", run_id="run", state="failed")
    assert make_up(ledger.port(), airflow.api()) == []
    assert ledger.broken == []


def test_a_run_that_is_gone_is_left() -> None:
    ledger = LedgerDouble()
    ledger.broken = [(1, 1, LOST)]
    assert make_up(ledger.port(), AirflowDouble().api()) == []
    assert ledger.broken == []


@pytest.mark.parametrize(("status", "left"), [(409, 1), (403, 0)], ids=["one of them runs", "no right"])
def test_a_refusal_is_tried_again_where_that_may_help(status: int, left: int) -> None:
    ledger, airflow = broken_off()

    def refuse() -> None:
        raise AirflowRefusedError("POST", "/clear", status, "no")

    airflow.before_clear = refuse
    assert make_up(ledger.port(), airflow.api()) == []
    assert len(ledger.broken) == left


def test_an_airflow_that_is_gone_leaves_it_to_the_next_pass() -> None:
    ledger, airflow = broken_off()

    def gone() -> None:
        raise AirflowUnavailableError("no answer")

    airflow.before_clear = gone
    with pytest.raises(AirflowUnavailableError):
        make_up(ledger.port(), airflow.api())
    assert len(ledger.broken) == 1
