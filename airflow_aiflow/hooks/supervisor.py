"""
What this process may do about the supervisor that Airflow's worker keeps beside it.

The only module that touches the task SDK's inner parts (``task_runner.SUPERVISOR_COMMS``); a test holds each use
against the installed release.

The supervisor reports how its process ended *by task instance id*. Where a later try runs under the same id (a race of
two schedulers), any report of ours would end that healthy try. So a superseded process does not just exit: it waits
until the server has told the supervisor, whose heartbeat is refused, to end it; then nothing is reported.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from uuid import UUID

#: How long a superseded process waits to be ended. The supervisor beats every [workers] min_heartbeat_interval (5 s);
#: twelve beats outlast a server that is restarting.
VERDICT_SECONDS = 60.0

#: How long Airflow gets to take a task back: its client tries a server again that restarts.
HAND_BACK_SECONDS = 30.0

#: How often the waiting process looks whether its supervisor is gone.
LOOK_SECONDS = 0.2


def is_supervised() -> bool:
    """Say whether this process is a task process of its own, not ``dag.test()`` in somebody's program."""
    runner = sys.modules.get("airflow.sdk.execution_time.task_runner")
    comms = getattr(runner, "SUPERVISOR_COMMS", None)
    if comms is None:
        return False
    from airflow.sdk.execution_time.comms import CommsDecoder

    return isinstance(comms, CommsDecoder)


def ask_airflow(
    ti_id: UUID, *, subject: str, body: str, options: list[str], assigned_users: Sequence[str]
) -> tuple[str, list[str]]:
    """
    Have Airflow show a form for this task instance.

    :param ti_id: the task instance.
    :param subject: one line.
    :param body: what a person needs to decide.
    :param options: what may be chosen, one of them.
    :param assigned_users: ids of who may answer; empty: everybody with the right to.
    :return: subject and options of the form that is there now: a task instance keeps its first one for life.
    :raises Exception: Airflow's, if it takes no form.
    """
    from airflow.sdk.api.datamodels._generated import HITLUser
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    # The task SDK's own function drops the answer, which alone tells an old form from a new one.
    shown = SUPERVISOR_COMMS.send(
        CreateHITLDetailPayload(
            ti_id=ti_id,
            options=options,
            subject=subject,
            body=body,
            params={},
            assigned_users=[HITLUser(id=user, name=user) for user in assigned_users],
        )
    )
    if not isinstance(shown, HITLDetailRequestResult):
        raise TypeError(f"Airflow answered the wish for a form with {type(shown).__name__}")
    return shown.subject, list(shown.options)


def end_failed() -> NoReturn:
    """End this process; the supervisor reports a failure, and Airflow retries as the task says."""
    flush_logs()
    os._exit(1)


def hand_back(back_at: datetime) -> NoReturn:
    """
    End this process, from any of its threads, as a reschedule: the same try comes back, and no retry is burnt.

    Another thread may hold the way to the supervisor for ever, or the server be away: then the process ends all the
    same. What the supervisor could not deliver, it delivers again when its process has ended.

    :param back_at: not sooner than 20 s from now, else Airflow's late word on this process fails the next one.
    """
    told = threading.Event()
    threading.Thread(target=_send_reschedule, args=(back_at, told), name="aiflow-hand-back", daemon=True).start()
    taken = told.wait(HAND_BACK_SECONDS)
    flush_logs()
    os._exit(0 if taken else 1)


def _send_reschedule(back_at: datetime, told: threading.Event) -> None:
    from airflow.sdk.execution_time.comms import RescheduleTask
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    try:
        SUPERVISOR_COMMS.send(RescheduleTask(reschedule_date=back_at, end_date=datetime.now(UTC)))
    except Exception:  # it is told by the exit code
        logging.getLogger(__name__).warning("aiflow: Airflow did not take this task back", exc_info=True)
    else:
        told.set()


def end_superseded(*, supervisor: int) -> NoReturn:
    """
    End this process without a report that could reach the attempt that has taken over.

    :param supervisor: the pid that was the parent when the task began.
    """
    flush_logs()
    deadline = time.monotonic() + VERDICT_SECONDS
    while os.getppid() == supervisor and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    # Reached where the supervisor is gone, so that nobody reports, or where the server refuses no heartbeat: then
    # Airflow takes this attempt for the current one, and a failure is the truth about it.
    os._exit(1)


def flush_logs() -> None:
    """Bring what was written to the task log out of this process's buffers."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for handler in logging.getLogger().handlers:
        handler.flush()
