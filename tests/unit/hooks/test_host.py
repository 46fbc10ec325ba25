"""What a flow says, in Airflow's words; and what never reaches Airflow."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

import pytest
from airflow.sdk import exceptions
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.exceptions import (
    AttemptParked,
    AttemptSuperseded,
    EffectDeclinedError,
    EffectExpiredError,
    EffectInDoubtError,
    JobFailedError,
    QuestionTimeoutError,
    StepTimeoutError,
)
from airflow_aiflow.hooks.host import AirflowHost, airflow_signals
from airflow_aiflow.hooks.supervisor import is_supervised

DELAY = 30.0


@pytest.fixture(name="host")
def _host() -> AirflowHost:
    return AirflowHost()


def translated(host: AirflowHost, error: BaseException) -> BaseException:
    with pytest.raises(BaseException) as caught, airflow_signals(host, reschedule_delay=DELAY):  # noqa: PT011
        raise error
    return caught.value


@pytest.mark.parametrize(("asked", "least"), [(1.0, DELAY), (120.0, 120.0)])
def test_parking_is_a_reschedule_that_is_not_too_quick(host: AirflowHost, asked: float, least: float) -> None:
    before = dt.datetime.now(dt.UTC)
    found = translated(host, AttemptParked(asked, "waiting for a job"))
    assert isinstance(found, exceptions.AirflowRescheduleException)
    waits = (found.reschedule_date - before).total_seconds()
    assert least <= waits < least + 5


@pytest.mark.parametrize(
    "kind", [EffectInDoubtError, EffectDeclinedError, EffectExpiredError, JobFailedError, QuestionTimeoutError]
)
def test_what_waits_for_a_person_burns_no_retry(host: AirflowHost, kind: type[Exception]) -> None:
    doubt = kind("effect 'pay' billing/4711 is in doubt")
    found = translated(host, doubt)
    assert isinstance(found, exceptions.AirflowFailException)
    assert str(found) == str(doubt)
    assert found.__cause__ is doubt


@pytest.mark.parametrize("error", [ValueError("mine"), StepTimeoutError("late"), SystemExit(3), KeyboardInterrupt()])
def test_everything_else_passes_unchanged(host: AirflowHost, error: BaseException) -> None:
    assert translated(host, error) is error


def test_outside_a_task_process_a_superseded_attempt_fails_for_good(host: AirflowHost) -> None:
    assert not is_supervised()
    found = translated(host, AttemptSuperseded("a later attempt took over"))
    assert isinstance(found, exceptions.AirflowFailException)
    assert host.superseded


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ValueError(), ExecutionState.FAILED),
        (SystemExit(1), ExecutionState.FAILED),
        (exceptions.AirflowFailException(), ExecutionState.FAILED),
        (exceptions.AirflowTaskTimeout(), ExecutionState.FAILED),
        (exceptions.AirflowSkipException(), ExecutionState.SUCCEEDED),
        (exceptions.DownstreamTasksSkipped(tasks=[]), ExecutionState.SUCCEEDED),  # type: ignore[no-untyped-call]
        (exceptions.AirflowRescheduleException(dt.datetime.now(dt.UTC)), ExecutionState.PAUSED),  # type: ignore[no-untyped-call]
        (exceptions.TaskDeferred(trigger=None, method_name="m"), ExecutionState.PAUSED),
        (KeyboardInterrupt(), None),
        (exceptions.AirflowTaskTerminated(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_how_the_authors_code_ended(host: AirflowHost, error: BaseException, state: Any) -> None:
    assert host.ending(error) is state


def test_secrets_are_those_of_airflows_masker(host: AirflowHost) -> None:
    reset_secrets_masker()
    mask_secret("hunter2-and-more")
    try:
        assert host.is_secret("the key is hunter2-and-more.")
        assert not host.is_secret("the key is *** here")
        assert host.redact("the key is hunter2-and-more.") == "the key is ***."
    finally:
        reset_secrets_masker()


def test_a_line_is_written_as_it_is(host: AirflowHost, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="airflow_aiflow.flow"):
        host.log("aiflow: 100 % of {this} %s")
        host.log("aiflow: mind this", warning=True)
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "aiflow: 100 % of {this} %s"),
        ("WARNING", "aiflow: mind this"),
    ]
