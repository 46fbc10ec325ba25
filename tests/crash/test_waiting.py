"""Jobs, sleeps and the word to end, in real processes: killed at each point, told by real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from tests.crash.child import IN_DOUBT
from tests.crash.launcher import ATTEMPT_SECONDS, Attempts, running
from tests.crash.waiting_child import PARKED

KILLED = -signal.SIGKILL

#: Never set: to let a moment pass.
MOMENT = threading.Event()

#: The first one of a name is the submission's, the second one the result's. The crash matrix has the others.
JOB_POINTS = [
    "after_intent@train",
    "after_act@train",
    "before_record@train",
    "after_record@train",
    "after_act@train:2",
    "after_record@train:2",
    "after_finish",
]


def start(attempts: Attempts, scenario: str, failpoint: str | None = None) -> subprocess.Popen[str]:
    job = attempts.job(scenario=scenario)
    return start_again(attempts, job, failpoint)


def start_again(attempts: Attempts, job: Path, failpoint: str | None = None) -> subprocess.Popen[str]:
    environment = os.environ | {"AIFLOW_TEST_OUTSIDE": str(attempts.folder)}
    environment.pop("AIFLOW_FAILPOINT", None)
    if failpoint:
        environment["AIFLOW_FAILPOINT"] = failpoint
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.waiting_child", str(job)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(attempts: Attempts, scenario: str, failpoint: str | None = None) -> tuple[int, str]:
    return ended(start(attempts, scenario, failpoint))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    with running(process):
        output, _ = process.communicate(timeout=ATTEMPT_SECONDS)
    return process.returncode, output


@pytest.mark.parametrize("point", JOB_POINTS)
def test_a_job_is_submitted_once_wherever_its_process_dies(attempts: Attempts, point: str) -> None:
    code, output = run(attempts, "job", point)
    assert code == KILLED, output
    code, output = run(attempts, "job")
    assert code == 0, output
    assert len(attempts.outside("jobs")) == 1
    assert attempts.outside("results") == ['["model of job-1", 14]']
    assert len(attempts.outside("fetched")) <= (2 if point == "after_act@train:2" else 1)


def test_a_job_that_cannot_be_asked_for_is_in_doubt(attempts: Attempts) -> None:
    assert run(attempts, "unfindable", "after_act@train")[0] == KILLED
    assert run(attempts, "unfindable")[0] == IN_DOUBT
    assert len(attempts.outside("jobs")) == 1
    assert attempts.outside("results") == []


def test_a_sleep_survives_a_kill(attempts: Attempts) -> None:
    began = time.monotonic()
    assert run(attempts, "asleep", "after_record@nap")[0] == KILLED
    woke_before = attempts.outside("woke")
    code, output = run(attempts, "asleep")
    assert code == 0, output
    assert (woke_before, len(attempts.outside("woke"))) == ([], 1)
    assert time.monotonic() - began >= 1.0


def pipe(attempts: Attempts, name: str) -> Path:
    path = attempts.folder / f"{name}.pipe"
    os.mkfifo(path)
    return path


def reached(attempts: Attempts, name: str) -> None:
    until = time.monotonic() + ATTEMPT_SECONDS
    while name not in attempts.outside("reached"):
        assert time.monotonic() < until
        MOMENT.wait(0.01)


def standing(attempts: Attempts) -> tuple[str, str | None]:
    with psycopg.connect(attempts.dsn) as connection:
        row = connection.execute("select state::text, pause_reason from aiflow.execution").fetchone()
    assert row is not None
    return row[0], row[1]


def test_a_model_call_in_flight_is_finished_and_paid_once(attempts: Attempts) -> None:
    """C11: SIGTERM twice, 20 ms apart, during the model call."""
    bill = pipe(attempts, "bill")
    process = start(attempts, "answered")
    with running(process):
        reached(attempts, "bill")
        process.send_signal(signal.SIGTERM)
        MOMENT.wait(0.02)
        process.send_signal(signal.SIGTERM)
        bill.write_text("go")
        output, _ = process.communicate(timeout=ATTEMPT_SECONDS)
    bill.unlink()
    assert process.returncode == PARKED, output
    assert attempts.outside("sent") == []
    assert standing(attempts) == ("paused", "this process is told to end")
    # Airflow calls the same try again.
    code, output = ended(start_again(attempts, attempts.describe(scenario="answered")))
    assert code == 0, output
    assert len(attempts.outside("bills")) == 1
    assert len(attempts.outside("sent")) == 1


def test_an_effect_that_has_just_returned_is_recorded(attempts: Attempts) -> None:
    """C11: SIGTERM 5 ms after the effect returned: a consistent row, and the next try replays."""
    code, output = run(attempts, "just_sent")
    assert code == PARKED, output
    with psycopg.connect(attempts.dsn) as connection:
        states = connection.execute("select state::text from aiflow.effect").fetchall()
    assert states == [("succeeded",)]
    assert run(attempts, "just_sent")[0] == 0
    assert len(attempts.outside("sent")) == 1


def test_an_effect_that_outlasts_the_grace_is_in_doubt(attempts: Attempts) -> None:
    held = pipe(attempts, "send")
    job = attempts.job(scenario="answered", grace=0.2)
    process = start_again(attempts, job)
    with running(process):
        reached(attempts, "send")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=ATTEMPT_SECONDS)
    held.unlink()
    assert process.returncode == PARKED, output
    assert run(attempts, "answered")[0] == IN_DOUBT
    assert len(attempts.outside("sent")) == 1
    assert len(attempts.outside("bills")) == 1


ASYNC_POINTS = ["after_record@square", "before_intent@send", "after_finish"]


@pytest.mark.parametrize("point", ASYNC_POINTS)
def test_an_async_task_resumes_where_its_process_died(attempts: Attempts, point: str) -> None:
    code, output = run(attempts, "awaited", point)
    assert code == KILLED, output
    code, output = run(attempts, "awaited")
    assert code == 0, output
    assert attempts.outside("results") == ['[0, 1, "a@example.com"]']
    assert len(attempts.outside("sent")) == 1
    # Two are at work at a time: the one whose record is not there yet is computed again.
    assert len(attempts.outside("computed")) <= (3 if point == "after_record@square" else 2)


def test_an_async_effect_that_acted_is_in_doubt(attempts: Attempts) -> None:
    assert run(attempts, "awaited", "after_act@send")[0] == KILLED
    assert run(attempts, "awaited")[0] == IN_DOUBT
    assert len(attempts.outside("sent")) == 1
