"""
Note that Airflow knows of a success: a listener that the plugin registers, run by Airflow in the task process.

Only a process that opened a flow acts. Where it fails or is slow, a later clear replays; it never costs the task, for
it is bounded and swallows every error.

Airflow calls the listener also where it refused the success, as of a task that was cleared at that moment: so it is
asked first. Else a clear of a success that nobody saw would run it all again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow_aiflow.durable.execution import Lease
    from airflow_aiflow.durable.ports import Ledger

log = logging.getLogger(__name__)

#: Airflow ends a task process 20 s after the task's end ([core] task_success_overtime), and other listeners want some.
HEARD_SECONDS = 2.0

_opened: dict[str, tuple[Ledger, Lease]] = {}


def remember(ti_id: str, ledger: Ledger, lease: Lease) -> None:
    """
    Keep what is to be noted when Airflow has heard of this task instance's success.

    :param ti_id: the task instance.
    :param ledger: of the attempt.
    :param lease: the attempt's; the note counts only while its fence is the current one.
    """
    _opened[ti_id] = (ledger, lease)


@hookimpl
def on_task_instance_success(task_instance: Any) -> None:
    """
    Note the success that Airflow has taken.

    :param task_instance: which one.
    """
    opened = _opened.pop(str(getattr(task_instance, "id", "")), None)
    if opened is None:
        return
    ledger, lease = opened
    work = (ledger, lease, task_instance)
    thread = threading.Thread(target=_note, args=work, name="aiflow-heard", daemon=True)
    thread.start()
    thread.join(HEARD_SECONDS)
    if thread.is_alive():
        log.info("aiflow: the ledger did not answer in %g s; a later clear of this task replays it", HEARD_SECONDS)


def _note(ledger: Ledger, lease: Lease, task_instance: Any) -> None:
    try:
        if not _took(task_instance):
            log.info("aiflow: Airflow did not take this success; a later clear of this task replays it")
            return
        ledger.heard(lease)
    except Exception as error:  # nothing of the task depends on it
        log.info("aiflow: the success could not be noted (%s); a later clear of this task replays it", error)


def _took(task_instance: Any) -> bool:
    """Ask Airflow whether the task instance has succeeded."""
    found: int = task_instance.get_ti_count(
        dag_id=task_instance.dag_id,
        map_index=task_instance.map_index,
        task_ids=[task_instance.task_id],
        run_ids=[task_instance.run_id],
        states=["success"],
    )
    return found == 1
