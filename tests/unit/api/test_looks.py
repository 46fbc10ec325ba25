"""One look for all who ask at about the same time."""

from __future__ import annotations

import threading

import pytest

from airflow_aiflow.api import looks
from airflow_aiflow.api.looks import FRESH_SECONDS, Looks
from airflow_aiflow.exceptions import LedgerUnavailableError


def test_a_fresh_look_is_given_again_and_an_old_one_is_not() -> None:
    now, taken = [0.0], iter(range(10))
    shared = Looks(lambda: next(taken), lambda: now[0])
    assert (shared.get(), shared.get()) == (0, 0)
    now[0] += FRESH_SECONDS
    assert shared.get() == 1


def test_a_failed_look_is_taken_again() -> None:
    answers = iter([LedgerUnavailableError("down"), 7])

    def look() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    shared = Looks(look, lambda: 0.0)
    with pytest.raises(LedgerUnavailableError):
        shared.get()
    assert shared.get() == 7


def test_who_waits_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "WAIT_SECONDS", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def slow() -> int:
        inside.set()
        leave.wait(20)
        return 1

    shared = Looks(slow)
    thread = threading.Thread(target=shared.get)
    thread.start()
    try:
        assert inside.wait(20)
        with pytest.raises(LedgerUnavailableError, match="takes more than"):
            shared.get()
    finally:
        leave.set()
        thread.join(20)
    assert shared.get() == 1


def test_many_share_one_look() -> None:
    count, gate = [0], threading.Barrier(8)

    def look() -> int:
        count[0] += 1
        return count[0]

    shared = Looks(look, lambda: 0.0)

    def ask() -> None:
        gate.wait(20)
        shared.get()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert count == [1]
