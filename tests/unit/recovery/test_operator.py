"""One pass of the operator: it looks again, acts, tells, and a trouble that passes fails nothing."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_aiflow.exceptions import AirflowRefusedError, AirflowUnavailableError, LedgerUnavailableError
from airflow_aiflow.hooks import recovering
from airflow_aiflow.operators import RequeueRunsOperator
from tests.unit.recovery.doubles import AirflowDouble, LedgerDouble, stalled


class NoDoubts:
    """Nobody has any."""

    def number(self) -> int:
        return 0

    def untold(self, **how: Any) -> list[Any]:
        return []

    def told(self, numbers: Any) -> None:
        raise AssertionError("there was none")


class Doors:
    """What the operator opens."""

    def __init__(self, ledger: LedgerDouble, airflow: AirflowDouble) -> None:
        self.ledger, self.api, self.doubts = ledger, airflow, NoDoubts()
        self.closed = False

    def close(self) -> None:
        self.closed = True


def run(monkeypatch: pytest.MonkeyPatch, ledger: LedgerDouble, airflow: AirflowDouble, **words: Any) -> Doors:
    doors = Doors(ledger, airflow)
    monkeypatch.setattr(recovering, "open_doors", lambda *conn_ids: doors)
    RequeueRunsOperator(task_id="requeue", **words).execute({})
    return doors


def two_runs() -> tuple[LedgerDouble, AirflowDouble]:
    stalls = [stalled(1, run_id="a"), stalled(2, run_id="b")]
    ledger, airflow = LedgerDouble(*stalls), AirflowDouble()
    airflow.holds(*stalls)
    return ledger, airflow


def test_a_pass_acts_and_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ledger, airflow = two_runs()
    assert run(monkeypatch, ledger, airflow).closed
    assert airflow.cleared == [["pay"], ["pay"]]
    assert "aiflow: requeue: task pay of billing, run a: its lease has lapsed" in capsys.readouterr().out


def test_its_policy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, airflow = two_runs()
    run(monkeypatch, ledger, airflow, policy={"rate_per_minute": 1})
    assert airflow.cleared == [["pay"]]


PASSING = (AirflowUnavailableError("gone"), AirflowRefusedError("GET", "/", 502, ""), LedgerUnavailableError("gone"))


@pytest.mark.parametrize("trouble", PASSING)
def test_a_trouble_that_passes_breaks_off_and_what_was_done_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: Exception
) -> None:
    class Goes(AirflowDouble):
        def dag(self, dag_id: str) -> dict[str, Any]:
            if self.cleared:
                raise trouble
            return super().dag(dag_id)

    ledger, _ = two_runs()
    airflow = Goes()
    airflow.holds(*ledger.stalls)
    run(monkeypatch, ledger, airflow)
    said = capsys.readouterr().out
    assert "run a: its lease has lapsed" in said
    assert "this pass is broken off, the next one goes on" in said
    assert (airflow.cleared, ledger.states) == ([["pay"]], {1: "cleared"})


@pytest.mark.parametrize("trouble", [AirflowUnavailableError("gone"), AirflowRefusedError("GET", "/", 502, "")])
def test_a_trouble_after_the_clear_takes_nothing_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: Exception
) -> None:
    class Goes(AirflowDouble):
        def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
            raise trouble

    ledger, _ = two_runs()
    airflow = Goes()
    airflow.holds(*ledger.stalls)
    run(monkeypatch, ledger, airflow)
    # Not noted as done: a later pass makes up for what may have failed below.
    assert (len(airflow.cleared), ledger.states) == (2, {1: "marked", 2: "marked"})
    assert capsys.readouterr().out.count("its lease has lapsed") == 2


def test_a_refusal_for_good_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses(AirflowDouble):
        def task_instances(self, *ids: Any, **filters: Any) -> Any:
            raise AirflowRefusedError("GET", "/", 403, "no right")

    with pytest.raises(AirflowRefusedError):
        run(monkeypatch, LedgerDouble(stalled()), Refuses())


def test_incidents_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_aiflow.durable.stall import Incident, StallKind
    from airflow_aiflow.notifications import AiflowNotifier

    told: list[str] = []

    class Tells(AiflowNotifier):
        def send(self, alert: Any, subject: str, text: str, context: Any) -> None:
            told.append(subject)

    ledger = LedgerDouble()
    ledger.told = [Incident(7, stalled().execution, 1, StallKind.HUNG, "requeue", "it hangs", 700.0)]
    for _ in range(2):
        run(monkeypatch, ledger, AirflowDouble(), notify=[Tells()])
    assert told == ["aiflow: recovered: billing pay, run run (hung)"]
