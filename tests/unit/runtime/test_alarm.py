"""Alarms: they ring in time, cancelled ones for nobody, and the thread sleeps through those that come later."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from airflow_aiflow.runtime import alarm
from airflow_aiflow.runtime.alarm import AlarmClock

#: Seconds that no alarm of these tests needs, on the slowest machine.
LONG = 30.0


@pytest.fixture
def clock() -> Iterator[AlarmClock]:
    """Give a running alarm clock."""
    running = AlarmClock()
    running.open()
    yield running
    running.close()


def asleep(clock: AlarmClock) -> None:
    """Wait until the thread has seen all that was set."""
    seen = threading.Event()
    clock.set(0.0, seen.set)
    assert seen.wait(LONG)


def test_an_alarm_rings_no_sooner_than_it_is_due(clock: AlarmClock) -> None:
    rung, began = threading.Event(), time.monotonic()
    clock.set(0.05, rung.set)
    assert rung.wait(LONG)
    assert time.monotonic() - began >= 0.05


def test_a_sooner_alarm_rings_though_the_thread_sleeps_until_a_later_one(clock: AlarmClock) -> None:
    clock.set(3600.0, lambda: None)
    asleep(clock)
    rung = threading.Event()
    clock.set(0.01, rung.set)
    assert rung.wait(LONG)


def test_alarms_ring_in_the_order_in_which_they_are_due(clock: AlarmClock) -> None:
    order: list[str] = []
    clock.set(0.06, lambda: order.append("late"))
    clock.set(0.02, lambda: order.append("early"))
    last = threading.Event()
    clock.set(0.1, last.set)
    assert last.wait(LONG)
    assert order == ["early", "late"]


def test_a_cancelled_alarm_is_silent_and_a_failing_one_stops_nobody(clock: AlarmClock) -> None:
    order: list[str] = []
    clock.set(0.02, lambda: order.append("cancelled")).cancel()
    clock.set(0.02, lambda: [].pop())
    rung = threading.Event()
    clock.set(0.05, rung.set)
    assert rung.wait(LONG)
    assert order == []


def test_the_thread_is_not_woken_for_an_alarm_that_is_due_after_it_wakes(clock: AlarmClock) -> None:
    # What wakes takes the interpreter from the one that works, twice for each effect.
    clock.set(100.0, lambda: None)
    asleep(clock)
    for _ in range(100):
        clock.set(200.0, lambda: None).cancel()
    assert clock._wake.empty()
    assert len(clock._fresh) == 100


def test_cancelled_alarms_do_not_pile_up(clock: AlarmClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarm, "SWEEP_AT", 64)
    clock.set(100.0, lambda: None)
    asleep(clock)
    for _ in range(1000):
        clock.set(200.0, lambda: None).cancel()
    never, deadline = threading.Event(), time.monotonic() + LONG
    while len(clock._fresh) > 64:
        assert time.monotonic() < deadline, "nobody takes them in"
        never.wait(0.001)


def test_alarms_set_from_many_threads_all_ring(clock: AlarmClock) -> None:
    rung = threading.Semaphore(0)

    def work(number: int) -> None:
        for turn in range(200):
            clock.set(0.0001 * ((number * 7 + turn) % 50), rung.release)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(800):
        assert rung.acquire(timeout=LONG)
