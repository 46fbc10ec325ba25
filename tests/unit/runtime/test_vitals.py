"""What a guard can read of its attempt."""

from __future__ import annotations

import mmap
import os

import pytest

from airflow_aiflow.runtime.gate import Gate
from airflow_aiflow.runtime.vitals import (
    AT_WORK,
    BEAT_AT,
    CALL_DUE,
    ENDED,
    ENDING,
    IN_HAND_UNTIL,
    NOTHING,
    PAGE_BYTES,
    STATE,
    STEP_BYTES,
    Vitals,
    step_of,
)
from airflow_aiflow.testing import ManualClock


@pytest.fixture(name="page")
def _page() -> bytearray:
    return bytearray(PAGE_BYTES)


def read(page: bytearray | mmap.mmap, place: int) -> float:
    return memoryview(page).cast("d")[place]


def test_a_page_begins_at_work_with_nothing_in_hand(page: bytearray) -> None:
    Vitals(page)
    assert (read(page, STATE), read(page, IN_HAND_UNTIL), read(page, CALL_DUE)) == (AT_WORK, NOTHING, 0.0)


def test_the_name_of_the_step_in_hand_is_left_behind(page: bytearray) -> None:
    vitals = Vitals(page)
    assert step_of(memoryview(page)) is None
    for name in ("a page of contract/a", "ü" * 600, "short"):
        vitals.in_hand(1.0, name)
        assert step_of(memoryview(page)) == name[: STEP_BYTES // 2]
    vitals.in_hand(None)
    assert step_of(memoryview(page)) is None


def test_a_gate_shows_the_step_that_it_let_in(page: bytearray) -> None:
    gate = Gate(ManualClock(), Vitals(page))
    with gate.hand("risky"):
        assert step_of(memoryview(page)) == "risky"
    assert step_of(memoryview(page)) is None


def test_the_gate_shows_until_when_what_is_in_hand_may_take(page: bytearray) -> None:
    clock = ManualClock()
    gate = Gate(clock, Vitals(page))
    with gate.hand("short", 5.0):
        with gate.hand("long", 60.0):
            assert read(page, IN_HAND_UNTIL) == clock.monotonic() + 60.0
        assert read(page, IN_HAND_UNTIL) == clock.monotonic() + 5.0
        gate.hold("outcomes", "map")
    assert read(page, IN_HAND_UNTIL) == 0.0  # held, without a time of its own
    gate.drop("outcomes")
    assert read(page, IN_HAND_UNTIL) == NOTHING


def test_the_earliest_deadline_of_several_calls_is_shown(page: bytearray) -> None:
    vitals = Vitals(page)
    vitals.calls("late", 20.0)
    vitals.calls("early", 10.0)
    assert read(page, CALL_DUE) == 10.0
    vitals.returned("early")
    assert read(page, CALL_DUE) == 20.0
    for _ in range(2):
        vitals.returned("late")
    assert read(page, CALL_DUE) == 0.0


def test_the_stages_of_an_attempt(page: bytearray) -> None:
    vitals = Vitals(page)
    vitals.beaten(1.5)
    assert read(page, BEAT_AT) == 1.5
    vitals.ending()
    assert read(page, STATE) == ENDING
    vitals.ended()
    assert read(page, STATE) == ENDED


def test_a_shared_page_is_seen_by_another_map_of_it() -> None:
    vitals = Vitals.shared()
    assert vitals.descriptor is not None
    try:
        with mmap.mmap(vitals.descriptor, PAGE_BYTES) as other:
            vitals.beaten(7.0)
            cells = memoryview(other).cast("d")
            assert cells[BEAT_AT] == 7.0
            cells.release()
    finally:
        os.close(vitals.descriptor)
