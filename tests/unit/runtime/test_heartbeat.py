"""What a heartbeat makes of a lease that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_aiflow.exceptions import EffectInDoubtError
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
