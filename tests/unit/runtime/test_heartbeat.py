"""What a heartbeat makes of a lease that is not there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_aiflow.exceptions import AttemptSuperseded, EffectInDoubtError
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask
from airflow_aiflow.testing.clock import ManualClock


class LedgerWithABeatBetween(MemoryLedger):
    """Let the heartbeat beat at once after an attempt has given its lease back, before it can be stopped."""

    beat_now: Callable[[], bool]
    beats: list[bool]

    def finish(self, *args: Any, **kwargs: Any) -> bool:
        """End the attempt, and be asked for its lease."""
        ended = super().finish(*args, **kwargs)
        self.beats.append(self.beat_now())
        return ended


@pytest.mark.parametrize("error", [None, ValueError("the author's"), EffectInDoubtError("a doubt")])
def test_a_beat_after_the_attempts_own_end_does_not_end_its_process(error: Exception | None) -> None:
    clock = ManualClock()
    ledger = LedgerWithABeatBetween(clock)
    ledger.beats = []
    task = DurableTask(ledger=ledger, clock=clock)
    flows: list[Flow] = []

    def body(flow: Flow) -> str:
        flows.append(flow)
        ledger.beat_now = flow._session.heartbeat.beat
        if error is not None:
            raise error
        return "done"

    if error is None:
        assert task.run(body) == "done"
    else:
        with pytest.raises(type(error)):
            task.run(body)
    assert ledger.beats == [False]  # the lease was gone
    assert flows[0]._session.gate.superseded is None
    assert not task.host.ended.is_set()


def test_a_worker_that_thaws_asks_the_ledger_before_it_pays_for_anything() -> None:
    """Its heartbeat thread would find out a moment later; the call would be paid for twice."""
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    task = DurableTask(ledger=ledger, clock=clock)
    paid: list[str] = []

    def work(flow: Flow, who: str) -> str:
        flow.step("before", paid.append, "before", cache_key="before")
        if who == "frozen":
            clock.advance(60.0)  # stopped for longer than its lease
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(task.run, lambda other: work(other, "new")).result()
        flow.step("after", paid.append, f"after, {who}", cache_key="after")
        return who

    with pytest.raises(AttemptSuperseded):
        task.run(lambda flow: work(flow, "frozen"))
    assert paid == ["before", "after, new"]


def test_a_beat_names_what_is_in_hand_with_its_own_timeout_and_nothing_between_steps() -> None:
    """Recovery measures a silence by what is in hand: the author's own code between steps is not its last step."""
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    task = DurableTask(ledger=ledger, clock=clock)
    carried: list[tuple[str | None, float | None]] = []

    def look(flow: Flow) -> None:
        flow._session.heartbeat.beat()
        lease = ledger._tables.leases[flow.lease.execution_pk]
        carried.append((lease.step_name, lease.step_timeout))

    def body(flow: Flow) -> None:
        look(flow)
        flow.step("train", lambda: look(flow), timeout=3_600, cache_key="train")
        flow.step("split", lambda: look(flow), cache_key="split")
        look(flow)

    task.run(body)
    assert carried == [(None, None), ("train", 3_600.0), ("split", None), (None, None)]
