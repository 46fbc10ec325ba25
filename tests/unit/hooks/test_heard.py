"""The listener acts for its own task alone, and never costs it anything."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.hooks import heard

LEASE = Lease(execution_pk=7, fence=3)


class Told:
    """Be of a ledger what the listener uses."""

    def __init__(self, *, error: Exception | None = None, answers: bool = True) -> None:
        self.leases: list[Lease] = []
        self.error = error
        self.release = threading.Event()
        if answers:
            self.release.set()

    def heard(self, lease: Lease) -> bool:
        self.release.wait()
        if self.error is not None:
            raise self.error
        self.leases.append(lease)
        return True


def succeeded(ti_id: str, state: str | None = "success") -> None:
    """Have a task instance end well, whatever Airflow made of that."""
    ids = {"dag_id": "billing", "run_id": "run", "task_id": "pay", "map_index": -1}

    def count(dag_id: str, map_index: int, task_ids: list[str], run_ids: list[str], states: list[str]) -> int:
        assert (dag_id, run_ids, task_ids, map_index) == ("billing", ["run"], ["pay"], -1)
        return int(state in states)

    heard.on_task_instance_success(SimpleNamespace(id=ti_id, get_ti_count=count, **ids))


def remembered(ti_id: str, ledger: Any) -> None:
    heard.remember(ti_id, ledger, LEASE)


def test_a_success_is_noted_once() -> None:
    ledger = Told()
    remembered("a", ledger)
    succeeded("a")
    succeeded("a")
    assert ledger.leases == [LEASE]


@pytest.mark.parametrize("state", ["restarting", None, "failed"], ids=str)
def test_a_success_that_airflow_refused_is_not_noted(state: str | None) -> None:
    ledger = Told()
    remembered("a", ledger)
    succeeded("a", state)
    assert ledger.leases == []


def test_another_tasks_success_is_none_of_ours() -> None:
    ledger = Told()
    remembered("a", ledger)
    succeeded("b")
    assert ledger.leases == []
    succeeded("a")


def test_an_error_costs_nothing() -> None:
    remembered("a", Told(error=ConnectionError("gone")))
    succeeded("a")


def test_a_silent_ledger_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard, "HEARD_SECONDS", 0.05)
    ledger = Told(answers=False)
    remembered("a", ledger)
    succeeded("a")
    assert ledger.leases == []
    ledger.release.set()
