"""Which moment `--before` means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_aiflow.durable.clean import moment_before
from airflow_aiflow.exceptions import AiflowConfigError

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-08-01", datetime(2026, 8, 1, tzinfo=UTC)),
        ("2026-08-01T06:00", datetime(2026, 8, 1, 6, tzinfo=UTC)),
        ("2026-08-01T06:00+02:00", datetime(2026, 8, 1, 4, tzinfo=UTC)),
        ("90d", NOW - timedelta(days=90)),
        ("12h", NOW - timedelta(hours=12)),
        ("30m", NOW - timedelta(minutes=30)),
    ],
)
def test_a_day_a_moment_or_so_long_ago(text: str, moment: datetime) -> None:
    assert moment_before(text, NOW) == moment


@pytest.mark.parametrize(
    "text", ["", "yesterday", "90", "-1d", "1.5d", "2026-13-01", "999999999999d", "2026-02-30T00:00"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(AiflowConfigError, match="90d"):
        moment_before(text, NOW)


@pytest.mark.parametrize("text", ["2026-12-01", "2026-11-30T12:00:01"])
def test_the_future_is_refused(text: str) -> None:
    with pytest.raises(AiflowConfigError, match="in the future"):
        moment_before(text, NOW)
