"""The moment in a step's seal: the same from a row's microseconds as from the moment itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_aiflow.durable.record import EPOCH, MICROSECOND, Kept, StepRecord, Stored
from airflow_aiflow.runtime.step_seal import sealed_at, sealed_us

#: Until the year 2191.
MOMENTS = st.integers(0, 7 * 10**15).map(lambda passed: EPOCH + passed * MICROSECOND)


@given(MOMENTS)
@example(datetime(2026, 11, 30, 18, 40, 3, 1, tzinfo=UTC))
@example(datetime(2026, 3, 1, 12, 30, 15, 123457, tzinfo=timezone(timedelta(hours=5, minutes=30))))
def test_a_replay_seals_as_the_record_was_sealed(moment: datetime) -> None:
    record = StepRecord(
        step_key=b"k" * 32,
        kind="item",
        name="page",
        unit="",
        fingerprint=b"f" * 32,
        occurrence=0,
        fence=1,
        result=Stored(inline=b"n"),
        seal=b"s" * 32,
        ended_at=moment,
        duration_ms=1,
    )
    kept = Kept.of(record)
    assert sealed_us(kept.ended_us) == sealed_at(moment)
    assert kept.ended_at == moment
