"""What is said to Airflow's supervisor over the task SDK's inner parts, held against the installed release."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder, RescheduleTask, _RequestFrame, _ResponseFrame

from airflow_aiflow.hooks import supervisor
from airflow_aiflow.hooks.host import MOST_RETURNS, AirflowHost

BACK_AT = datetime.now(UTC) + timedelta(seconds=30)


def in_task_process(call: Callable[[], object], answer: bool = True) -> tuple[int, dict[str, object] | None]:
    """
    Run a call in a process that has a supervisor, and be that one.

    :param answer: whether the supervisor answers.
    :return: the exit code, and what the supervisor was told.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            task_runner.SUPERVISOR_COMMS = CommsDecoder(socket=theirs)
            call()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)
    theirs.close()
    with ours:
        told = _read(ours)
        if told is not None and answer:
            ours.sendall(_ResponseFrame(id=told.id).as_bytes())
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), None if told is None else told.body


def _read(ours: socket.socket) -> _RequestFrame | None:
    """Read one frame as Airflow's supervisor does; ``None``: the process ended without a word."""
    head = ours.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    body = ours.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    return msgspec.msgpack.Decoder(_RequestFrame).decode(body)


def test_a_hand_back_is_a_reschedule_and_a_good_end() -> None:
    """Anything but 0 would burn a retry."""
    code, told = in_task_process(lambda: supervisor.hand_back(BACK_AT))
    assert code == 0
    assert told is not None
    assert RescheduleTask(**told).reschedule_date == BACK_AT


def test_a_supervisor_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "HAND_BACK_SECONDS", 0.2)
    code, told = in_task_process(lambda: supervisor.hand_back(BACK_AT), answer=False)
    assert code == 1
    assert told is not None


def test_a_thread_that_hangs_in_talk_with_the_supervisor_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "HAND_BACK_SECONDS", 0.2)

    def hand_back() -> None:
        task_runner.SUPERVISOR_COMMS._thread_lock.acquire()
        supervisor.hand_back(BACK_AT)

    assert in_task_process(hand_back) == (1, None)


@pytest.mark.parametrize(("came_back", "code"), [(0, 0), (MOST_RETURNS, 1)])
def test_what_hangs_each_time_comes_to_an_end(came_back: int, code: int) -> None:
    def end() -> None:
        host = AirflowHost(came_back=came_back)
        host.end_process("it hangs", superseded=False, back_in=30.0 if host.may_come_back else None)

    assert in_task_process(end)[0] == code


def test_outside_a_task_process_nothing_is_handed_back() -> None:
    host = AirflowHost()
    assert not host.may_come_back
    host.end_process("it hangs", superseded=False)
