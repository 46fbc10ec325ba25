"""Taking over: who goes on, who waits, who ends; and what a superseded attempt may still do."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable

import pytest

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AiflowConfigError, AttemptSuperseded, FlowClosedError, LedgerUnavailableError
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask

#: Short, so that a test sees beats; correctness never depends on it.
FAST = FlowSettings(lease=LeaseRules(ttl=0.5, interval=0.05), handover=20.0)

#: Longest wait for another thread; reached only where a test fails.
PATIENCE = 30.0


def together(*bodies: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_two_attempts_at_once_make_one_effect_and_one_charge() -> None:
    """C01: the second waits until the first has recorded its unit in hand; then it goes on from there."""
    task = DurableTask(clock=SystemClock(), settings=FAST)
    in_hand, let_through = threading.Event(), threading.Event()
    charged: list[int] = []
    results: list[str] = []

    def charge() -> str:
        charged.append(1)
        in_hand.set()
        assert let_through.wait(PATIENCE)
        return "charged"

    def endless(f: Flow) -> None:
        f.step("charge", charge, cache_key=1)
        for number in itertools.count():
            f.step("more", str, number)

    def first() -> None:
        with pytest.raises(AttemptSuperseded):
            task.run(endless)

    def second() -> None:
        assert in_hand.wait(PATIENCE)
        results.append(task.run(lambda f: f.step("charge", charge, cache_key=1)))

    def release() -> None:
        assert in_hand.wait(PATIENCE)
        # The newcomer has asked for the lease when the first attempt is told to start nothing more.
        assert task.clock.wait(PATIENCE, until=lambda: task.host.ended.is_set() or bool(_wanted(task)))
        let_through.set()

    together(first, second, release)
    assert charged == [1]
    assert results == ["charged"]


def _wanted(task: DurableTask) -> bool:
    assert isinstance(task.ledger, MemoryLedger)
    return any(row.wanted_by is not None for row in task.ledger._tables.leases.values())


def test_a_late_outcome_of_a_superseded_attempt_is_kept_and_its_return_value_refused() -> None:
    """C29: the frozen attempt's step is recorded, its end is not."""
    clock = SystemClock()
    task = DurableTask(clock=clock, settings=FlowSettings(lease=LeaseRules(ttl=100.0, interval=10.0), handover=0.001))
    ran: list[str] = []

    def body(f: Flow) -> str:
        def frozen() -> str:
            ran.append("old")
            # While this attempt is in the middle of a call, a later one takes over and finishes.
            assert task.run(lambda g: g.step("other", str, "new")) == "new"
            return "late"

        return f.step("call", frozen, cache_key=1)

    with pytest.raises(AttemptSuperseded):
        task.run(body)
    steps = [s.name for s in task.ledger.recorded(_lease(task), 1).steps]
    assert sorted(steps) == ["call", "other"]


def _lease(task: DurableTask) -> Lease:
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    return Lease(standing.execution_pk, standing.fence)


def test_an_older_attempt_that_starts_late_is_refused() -> None:
    task = DurableTask()
    older = task.attempt()
    task.retried()
    task.run(lambda f: None)
    from airflow_aiflow.runtime.attempt_run import run_attempt

    with pytest.raises(AttemptSuperseded, match="a later attempt of"):
        run_attempt(older, task.services, lambda f: None)


def test_a_reschedule_goes_on_as_the_same_attempt() -> None:
    """C16: nothing that a resume needs lives in XCom."""
    task = DurableTask()
    ran: list[int] = []

    def ask() -> int:
        ran.append(1)
        return 7

    def body(f: Flow) -> int:
        f.step("ask", ask, cache_key=1)
        return f.attempt

    first = task.run(body)
    task.same_again()
    assert task.run(body) == first == 1
    assert ran == [1]


def test_a_closed_flow_takes_no_call() -> None:
    task = DurableTask()
    leaked: list[Flow] = []
    task.run(leaked.append)
    with pytest.raises(FlowClosedError, match="has ended"):
        leaked[0].step("x", str, 1)


def test_a_heartbeat_must_fit_the_lease() -> None:
    """C06: a lease that one lost beat would cost is refused."""
    with pytest.raises(
        AiflowConfigError, match=re.escape("lease_ttl (30 s) must be more than twice heartbeat_interval (50 s)")
    ):
        LeaseRules(ttl=30, interval=50)


def test_a_ledger_that_cannot_be_asked_starts_nothing() -> None:
    task = DurableTask()
    assert isinstance(task.ledger, MemoryLedger)
    task.ledger.unavailable = True
    ran: list[int] = []
    with pytest.raises(LedgerUnavailableError):
        task.run(lambda f: ran.append(1))
    assert ran == []
