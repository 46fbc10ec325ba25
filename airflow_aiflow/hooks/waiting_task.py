"""
Tell Airflow that a waiting task may go on, after its answer has come into the inbox.

Never sooner than some seconds after the task was parked: until the executor has reported the end of the parked process,
its late "success" would meet the task queued again and fail it. Whatever goes wrong here costs time alone: the answer
is in the ledger, and the task looks there by itself.

Imports nothing of Airflow: commands and the API use it as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import DID_NOT_HAPPEN, FAIL, HAPPENED, Inbox
from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.hooks.airflow_api import AsksAirflow
from airflow_aiflow.hooks.airflow_form import NOT_FOUND, AirflowForm, numbers_in, read_form, respond, task_path

#: Seconds from the parking until the task may go on: a supervisor that misses its process's end by a hair notices it
#: one ``[workers] min_heartbeat_interval`` later (5 s), and the scheduler some tenths after that; twice that is safe.
SAFE_AFTER = 10.0

#: Seconds from queueing to parking, about: a task that looks and parks again does nothing else.
STARTING = 5.0

#: Seconds to wait for a task that is about to park: it has asked, and its process is ending.
PARKING = 20.0

#: Seconds between two looks at it.
LOOK = 0.5

#: What is said about a call; anything else answers a question.
ON_A_CALL = ("happened", "did_not_happen")

LetGo = Literal["told", "by itself", "later", "clear", "ended", "gone", "asks more"]

SENTENCES: dict[LetGo, str] = {
    "told": "the waiting task goes on now",
    "by itself": "the task is at work or in the queue, and finds the answer by itself",
    "later": "the task looks into the inbox by itself, within some minutes",
    "clear": "its task is not waiting any more ({state}): clear it, and it goes on from here",
    "ended": "its task is not waiting any more ({state}), so the answer came too late; a cleared task asks anew",
    "gone": "its run or task is not in Airflow any more; the word stands for whoever comes to this effect",
    "asks more": "the task waits for further answers: {open}",
}


@dataclass(frozen=True, slots=True)
class Told:
    """Say what becomes of the task, in one word and in a sentence for people."""

    outcome: LetGo
    sentence: str


def let_go(
    api: AsksAirflow, inbox: Inbox, execution: ExecutionId, *, parked_at: datetime | None, option: str, clock: Clock
) -> Told:
    """
    Let the task of an execution go on, where it waits in Airflow's form.

    :param api: Airflow's.
    :param inbox: tells whether the form asks more than was answered.
    :param execution: whose answer has come.
    :param parked_at: when it asked first; ``None``: unknown.
    :param option: what was said, for the record that Airflow keeps.
    :param clock: waits.
    :raises AirflowRefusedError: if the API refused.
    """
    instance = _instance(api, execution, clock)
    if instance is None:
        return _told("gone")
    state = str(instance["state"])
    if state in ("running", "queued", "scheduled", "restarting"):
        return _told("by itself")
    if state in ("up_for_reschedule", "up_for_retry", "deferred"):
        return _told("later")
    if state != "awaiting_input":
        # A word on a call stands for ever; an answer is valid until the task is cleared.
        return _told("clear" if option in ON_A_CALL else "ended", state=state)
    form = read_form(api, execution)
    if form is None:
        return _told("later")
    still_open = sorted(number for number in form.numbers if _is_open(inbox, number))
    if still_open and option != FAIL:  # who shall fail waits for nothing more
        return _told("asks more", open=", ".join(f"#{number}" for number in still_open))
    _wait_until_safe([form.created_at, parked_at, _begun(instance)], clock)
    respond(api, execution, _nearest(form, option))
    return _told("told")


def _told(outcome: LetGo, **words: str) -> Told:
    return Told(outcome, SENTENCES[outcome].format(**words))


def _instance(api: AsksAirflow, execution: ExecutionId, clock: Clock) -> dict[str, Any] | None:
    """Read the task instance; a process that has just asked is given time to park."""
    found: list[dict[str, Any] | None] = []

    def parked() -> bool:
        found[:] = [_look(api, execution)]
        return found[0] is None or found[0]["state"] != "running"

    if not parked():
        clock.wait(PARKING, until=_every(LOOK, parked, clock))
    return found[0]


def _every(seconds: float, look: Callable[[], bool], clock: Clock) -> Callable[[], bool]:
    """Look at most so often, however often the clock asks."""
    next_at = [clock.monotonic() + seconds]

    def due() -> bool:
        if clock.monotonic() < next_at[0]:
            return False
        next_at[0] = clock.monotonic() + seconds
        return look()

    return due


def _look(api: AsksAirflow, execution: ExecutionId) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = api.request("GET", task_path(execution))
        return found
    except AirflowRefusedError as error:
        if error.status == NOT_FOUND:
            return None
        raise


def _is_open(inbox: Inbox, number: int) -> bool:
    """Say whether a task still waits for word on a number."""
    question = inbox.question(number)
    if question is not None and question.answer is not None:
        return False
    if question is None or question.kind == "doubt":
        return any(entry.number == number for entry in inbox.waiting(after=number - 1, limit=1))
    return True


def _begun(instance: dict[str, Any]) -> datetime | None:
    """Say when the process that has parked may have done so: it began a little after it was queued."""
    queued = instance.get("queued_when")
    return None if queued is None else datetime.fromisoformat(queued) + timedelta(seconds=STARTING)


def _wait_until_safe(parked: list[datetime | None], clock: Clock) -> None:
    # These are other machines' clocks, a few seconds off at worst, and the wait is twice what is needed.
    since = max(moment for moment in parked if moment is not None)
    left = SAFE_AFTER - (clock.now() - since).total_seconds()
    if left > 0:
        clock.wait(min(left, SAFE_AFTER))


def _nearest(form: AirflowForm, option: str) -> str:
    """Choose the form's option that says what was said, for the record alone: nobody reads an answer from it."""
    word = {"happened": HAPPENED, "did_not_happen": DID_NOT_HAPPEN}.get(option, option)
    fitting = [one for one in form.options if one.startswith(word) and numbers_in([one])]
    return (fitting or list(form.options))[0]
