"""What one pass of recovery tells Airflow's stats: what was done, once, and how many effects are in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk.observability import stats

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.stall import Decision, Incident, Leave, Quarantine, Requeue, StallKind
from airflow_aiflow.operators.requeue import count, count_doubts
from airflow_aiflow.recovery.deeds import Deed


class Backend:
    """Keep what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, float, dict[str, str] | None]] = []

    def incr(self, stat: str, count: float = 1, rate: float = 1, *, tags: dict[str, str] | None = None) -> None:
        self.sent.append((stat, count, tags))

    def timing(self, stat: str, dt: Any, *, tags: dict[str, str] | None = None) -> None:
        self.sent.append((stat, dt.total_seconds(), tags))

    def gauge(self, stat: str, value: float, *, tags: dict[str, str] | None = None) -> None:
        self.sent.append((stat, value, tags))


@pytest.fixture
def backend() -> Iterator[Backend]:
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    made: Any = Backend()
    stats.initialize(factory=lambda: made, export_legacy_names=True)
    yield made
    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


def deed(kind: StallKind, done: Decision, after: float = 12.0) -> Deed:
    execution = ExecutionId("d", "r", "t", -1)
    return Deed(Incident(1, execution, 1, kind, "requeue", "why", after), done)


def test_a_pass_tells_what_it_did(backend: Backend) -> None:
    done = [
        deed(StallKind.DEAD_WORKER, Requeue(StallKind.DEAD_WORKER, "gone")),
        deed(StallKind.HUNG, Quarantine(StallKind.HUNG, "again"), 700.0),
        deed(StallKind.RESTARTING, Leave("Airflow refused", kind=StallKind.RESTARTING)),
    ]
    for each in done:
        count(each)
    count_doubts(2)
    assert backend.sent == [
        ("aiflow.run.stalled", 1, {"kind": "dead_worker", "decision": "requeue"}),
        ("aiflow.recovery.detect_seconds", 12.0, {"kind": "dead_worker"}),
        ("aiflow.run.recovered", 1, {"kind": "dead_worker"}),
        ("aiflow.run.stalled", 1, {"kind": "hung", "decision": "quarantine"}),
        ("aiflow.recovery.detect_seconds", 700.0, {"kind": "hung"}),
        ("aiflow.effects.in_doubt", 2, None),
    ]


def test_a_pass_that_found_nothing_tells_of_doubts_alone(backend: Backend) -> None:
    count_doubts(0)
    assert backend.sent == [("aiflow.effects.in_doubt", 0, None)]
