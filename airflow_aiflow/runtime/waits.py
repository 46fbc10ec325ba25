"""
Wait for a time to come: in the worker's slot where it is short, else the slot goes back meanwhile.

The first attempt records when the wait ends, so that no retry begins it anew; its end is recorded too. The moment is
one of the wall clock of the worker that came first. Not covered: where the clocks of two workers differ, a wait that is
gone on with on the other one ends as much earlier or later.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.policy import Duration, check_name, seconds
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.effects import LONGEST_WAIT
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall, give_back, prepare, run_live, run_step


def run_sleep(session: Session, name: str, delay: Duration) -> None:
    """
    Carry out ``flow.sleep``: once, over all attempts of this generation.

    :param session: the attempt at work.
    :param name: of the wait.
    :param delay: from the first attempt that came here; another one is another wait.
    """
    check_name("sleep", name)
    length = seconds(delay, "delay")
    # A map index counts: a sibling's wait is none of this task's.
    who = session.attempt.execution.map_index
    now = session.services.clock.now
    wake_at: datetime = run_step(
        session,
        StepCall(
            kind="sleep",
            name=name,
            fingerprint=fingerprint("sleep", length, who),
            run=lambda: Ran(now() + timedelta(seconds=length)),
            as_type=datetime,
        ),
    )
    slept = StepCall(kind="sleep", name=name, fingerprint=fingerprint("slept", wake_at, who), run=lambda: Ran(None))
    after(session, slept, lambda: until(session, wake_at, f"'{name}' sleeps until {wake_at:%Y-%m-%d %H:%M:%S} UTC"))


def after(session: Session, call: StepCall, wait: Callable[[], None]) -> object:
    """
    Replay a step, or wait and then run it. The wait is no part of the step: it has no timeout, and holds nothing.

    :param session: the attempt at work.
    :param call: the step.
    :param wait: may park the attempt.
    :return: the step's value.
    """
    with flow_call(session):
        done, value = prepare(session, call)
        if done:
            return value
        try:
            wait()
        except BaseException:
            give_back(session, value)
            raise
        return run_live(session, call, value)


def until(session: Session, moment: datetime, why: str) -> None:
    """
    Wait for a moment.

    :param moment: of the wall clock.
    :param why: one line for the log, where the slot goes back.
    """
    left = (moment - session.services.clock.now()).total_seconds()
    if left > 0:
        rest(session, left, why)


def rest(session: Session, length: float, why: str) -> None:
    """
    Wait for a while.

    :param length: seconds.
    :param why: one line for the log, where the slot goes back.
    :raises AttemptParked: if it is longer than a slot is kept, or the process is to end.
    """
    session.gate.check()
    if length > LONGEST_WAIT:
        session.gate.park(length, why)
    session.pause(length)
    session.gate.check()
