"""Waiting awake: it sees what comes, ends in time, rests after vain looks, leaves a lone processor to the server."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.waiting import Ready, Wait

from airflow_aiflow.storage import awake
from airflow_aiflow.storage.awake import FIRST_REST, LONGEST_REST, AwakeWait


class CountedPoll:
    """Count the looks (0 ms) and the sleeps of a real poll."""

    def __init__(self, poll: Any) -> None:
        self._poll = poll
        self.looks = self.sleeps = 0

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        """Poll."""
        if milliseconds:
            self.sleeps += 1
        else:
            self.looks += 1
        found: list[tuple[int, int]] = self._poll.poll(milliseconds)
        return found


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give two connected sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def two_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have two processors wherever the test runs, and none of their time dealt; look long enough for a busy machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(awake, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(awake, "AWAKE", 0.05)


def waiting(ours: socket.socket) -> tuple[AwakeWait, CountedPoll]:
    """Give a wait whose polls are counted."""
    answer = AwakeWait(ours.fileno())
    counted = CountedPoll(answer._poll)
    answer._poll = counted  # type: ignore[assignment]
    return answer, counted


@pytest.mark.usefixtures("two_processors")
def test_what_is_there_is_seen_by_one_look(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    answer, counted = waiting(ours)
    assert not answer.ready()
    theirs.send(b"x")
    assert answer.ready()
    assert answer.until_ready(60)
    assert (counted.looks, counted.sleeps) == (3, 0)


@pytest.mark.usefixtures("two_processors")
def test_an_end_of_the_connection_is_something_to_read(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    answer, _ = waiting(ours)
    theirs.close()
    assert answer.until_ready(60)


@pytest.mark.usefixtures("two_processors")
def test_vain_looks_make_the_next_waits_sleep_and_a_quick_answer_ends_that(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    answer, counted = waiting(ours)
    assert not answer.until_ready(0.001)
    assert counted.looks > 1
    assert counted.sleeps == 1
    counted.looks = 0
    for _ in range(FIRST_REST):
        assert not answer.until_ready(0.001)
    assert counted.looks == 0, "it looked although the last look was in vain"
    for _ in range(LONGEST_REST * 4):
        answer.until_ready(0.0001)
    assert answer._rest == LONGEST_REST
    theirs.send(b"x")
    while answer._resting:
        assert answer.until_ready(60)
    assert answer.until_ready(60)
    assert answer._rest == FIRST_REST


def test_with_one_processor_nobody_looks(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    ours, _theirs = pair
    answer, counted = waiting(ours)
    assert not answer.until_ready(0.001)
    assert (counted.looks, counted.sleeps) == (0, 1)


def test_a_system_that_does_not_know_its_processors_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert not awake.may_look()


@pytest.mark.usefixtures("two_processors")
@pytest.mark.parametrize(
    ("file", "text", "looks"),
    [
        ("cpu.max", "max 100000\n", True),
        ("cpu.max", "200000 100000\n", False),
        ("cpu/cpu.cfs_quota_us", "-1\n", True),
        ("cpu/cpu.cfs_quota_us", "50000\n", False),
    ],
)
def test_where_processor_time_is_dealt_nobody_looks(tmp_path: Path, file: str, text: str, looks: bool) -> None:
    """The processors that a container sees are the machine's, however little of them it may use."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert awake.may_look() == looks


@pytest.mark.usefixtures("two_processors")
def test_the_drivers_waiting_is_passed_on_where_nothing_came(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    answer, _ = waiting(ours)

    def driver() -> Generator[Any, Any, list[Any]]:
        readiness = [(yield Wait.R)]
        readiness.append((yield Wait.W))
        theirs.send(b"x")
        readiness.append((yield Wait.R))
        return readiness

    passed_on = answer.before(driver())
    assert next(passed_on) == Wait.R, "nothing has come: the driver is to wait"
    assert passed_on.send(Ready.R) == Wait.W, "only reading is looked for"
    answer._resting = 0
    with pytest.raises(StopIteration) as end:
        passed_on.send(Ready.W)
    assert end.value.value == [Ready.R, Ready.W, Ready.R]
