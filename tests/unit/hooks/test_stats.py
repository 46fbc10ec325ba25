"""Figures through Airflow's stats: tags fit every backend, and no backend can fail or hold up an attempt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.observability import stats as airflow_stats

from airflow_aiflow.durable.stall import StallKind
from airflow_aiflow.hooks import stats as module
from airflow_aiflow.hooks.recovery_stats import RecoveryStats
from airflow_aiflow.hooks.stats import MOST_TROUBLES, AirflowStats, fit
from airflow_aiflow.testing.stats import CollectedStats


class Backend:
    """Stand for a client of the deployment's own."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def _take(self, *what: Any) -> None:
        self.sent.append(what)
        if self.error is not None:
            raise self.error

    def incr(self, stat: str, count: float = 1, rate: float = 1, *, tags: dict[str, str] | None = None) -> None:
        self._take("incr", stat, count, tags)

    def timing(self, stat: str, dt: Any, *, tags: dict[str, str] | None = None) -> None:
        self._take("timing", stat, dt, tags)

    def gauge(
        self, stat: str, value: float, rate: float = 1, delta: bool = False, *, tags: dict[str, str] | None = None
    ) -> None:
        self._take("gauge", stat, value, tags)


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    airflow_stats.initialize(factory=lambda: made, export_legacy_names=True)  # type: ignore[arg-type,return-value]
    yield made
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    airflow_stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


def test_each_kind_reaches_the_backend(backend: Backend) -> None:
    figures = AirflowStats()
    figures.count("aiflow.steps.saved", 4, {"workflow": "d/t"})
    figures.timing("aiflow.step.duration", 1.5, {"step": "s"})
    figures.gauge("aiflow.effects.in_doubt", 0, {})
    assert backend.sent == [
        ("incr", "aiflow.steps.saved", 4, {"workflow": "d/t"}),
        ("timing", "aiflow.step.duration", timedelta(seconds=1.5), {"step": "s"}),
        ("gauge", "aiflow.effects.in_doubt", 0, None),
    ]


def test_a_backend_that_raises_is_given_up_and_said_once(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    backend.error = OSError("no route")
    figures = AirflowStats()
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            figures.count("aiflow.steps.saved", 1, {})
    assert len(backend.sent) == MOST_TROUBLES
    [line] = [record.getMessage() for record in caplog.records if "no figures" in record.getMessage()]
    assert "aiflow.steps.saved: OSError: no route" in line


def test_a_slow_backend_is_given_up(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr("airflow_aiflow.hooks.stats.time.monotonic", lambda: float(next(times)))
    figures = AirflowStats()
    for _ in range(10):
        figures.timing("aiflow.step.duration", 1, {})
    assert len(backend.sent) == MOST_TROUBLES


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("page", "page"),
        ("read page, 1=2", "read_page__1_2"),
        ("Prüfung\n", "Pr_fung_"),
        ("d.ag-1/task_2", "d.ag-1/task_2"),
        ("", "_"),
        ("\ud800", "_"),
    ],
)
def test_tags_hold_only_what_every_backend_takes(text: str, shown: str) -> None:
    assert fit({"step": text}) == {"step": shown}


def test_long_tags_are_cut_and_told_apart() -> None:
    first, second = (fit({"workflow": "d" * 250 + "/" + tail})["workflow"] for tail in ("one", "two"))
    assert first != second
    assert len(first) == len(second) == module.LONGEST["workflow"]


def test_the_longest_tags_pass_airflows_own_check() -> None:
    """Airflow's check drops a name of more than 250 characters, tags included, with a traceback."""
    from airflow.sdk._shared.observability.metrics.validators import get_current_handler_stat_name_func

    tags = fit({"workflow": "ü" * 501, "step": "x" * 512, "from_checkpoint": "false"})
    name = "aiflow.step.duration" + "".join(f",{key}={value}" for key, value in tags.items())
    assert get_current_handler_stat_name_func(None, statsd_influxdb_enabled=True)(name) == name


def test_recovery_tells_its_figures() -> None:
    kept = CollectedStats()
    recovery = RecoveryStats(kept)
    recovery.stalled(StallKind.DEAD_WORKER, "requeue", 12.0)
    recovery.recovered(StallKind.DEAD_WORKER)
    recovery.in_doubt(2)
    assert [(f.kind, f.name, f.value, dict(f.tags)) for f in kept.figures] == [
        ("count", "aiflow.run.stalled", 1, {"kind": "dead_worker", "decision": "requeue"}),
        ("timing", "aiflow.recovery.detect_seconds", 12.0, {"kind": "dead_worker"}),
        ("count", "aiflow.run.recovered", 1, {"kind": "dead_worker"}),
        ("gauge", "aiflow.effects.in_doubt", 2, {}),
    ]


def test_recovery_uses_airflows_stats(backend: Backend) -> None:
    RecoveryStats().in_doubt(3)
    assert backend.sent == [("gauge", "aiflow.effects.in_doubt", 3, None)]
