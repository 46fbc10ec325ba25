"""
Ask the target what became of a call, by the author's ``reconcile=``.

Whatever goes wrong in it (an exception, a hang, an answer that is none) is "can't tell" and never "no": only a no lets
the call be made again.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.identity import OWN_KEY, idempotency_key
from airflow_aiflow.durable.policy import seconds
from airflow_aiflow.durable.reconcile import CannotTell, DidNotHappen, Finding, Happened, Intent, StillPending
from airflow_aiflow.exceptions import EffectTimeoutError
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.process import is_dead
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import refuse_unrun

#: How much of an error's or a finding's text a log line and a question show.
SHOWN = 300


def read_intent(found: EffectRecord, recorded: RecordedRequest, request: Request) -> Intent:
    """
    Describe a recorded call to the author's code.

    :param found: the effect, with the intent that counts.
    :param recorded: its request.
    :param request: today's, which gives the function and its argument classes.
    """
    return Intent(
        name=found.effect.name,
        key="" if found.effect.key == OWN_KEY else found.effect.key,
        idempotency_key=idempotency_key(found.effect, found.repeat),
        request=recorded.by_name(request),
        begun_at=found.intended_at,
        attempt=found.attempt_number,
    )


def ask_target(
    session: Session,
    reconcile: Callable[[Intent], Finding],
    timeout: float,
    found: EffectRecord,
    recorded: RecordedRequest,
    request: Request,
) -> Finding:
    """
    Ask what became of a call whose outcome is unknown.

    :param session: the attempt at work.
    :param reconcile: the author's.
    :param timeout: seconds that it may take.
    :param found: the effect in doubt.
    :param recorded: its request.
    :param request: today's.
    """
    name = found.effect.name
    failpoint("before_reconcile", name)
    try:
        intent = read_intent(found, recorded, request)
        finding = _checked(_within(session, timeout, name, lambda: refuse_unrun(author(reconcile, intent))))
    except Exception as error:  # the author's, or a request that can't be read
        why = _short(session, f"reconcile= of effect '{name}' failed with {type(error).__name__}: {error}")
        session.services.host.log(f"aiflow: {why}; that is read as can't tell", warning=True)
        finding = CannotTell(why)
    failpoint("after_reconcile", name)
    return finding


def trusted_no(found: EffectRecord, recorded: RecordedRequest) -> bool:
    """
    Say whether "it did not happen" can be relied on: the first call must not be applied behind it.

    A call of this very attempt is none of a dead process: its request may lie before the target still, which is where
    most time-outs come from.

    :param found: the effect in doubt.
    :param recorded: its request; with our key the target applies one of two calls alone.
    """
    return recorded.keyed or is_dead(found.owner) is True


def _checked(finding: Any) -> Finding:
    if isinstance(finding, StillPending):
        return StillPending(seconds(finding.check_in, "StillPending(check_in=)"))
    if isinstance(finding, Happened | DidNotHappen | CannotTell):
        return finding
    raise TypeError(
        f"it gave {finding!r}, which is no finding: return Happened(result), DidNotHappen(), StillPending(check_in=) "
        f"or CannotTell(why=)"
    )


def _within(session: Session, timeout: float, name: str, call: Callable[[], Any]) -> Any:
    def late() -> Exception:
        return EffectTimeoutError(f"it did not end within {timeout:g} s")

    if threading.current_thread() is threading.main_thread():
        return session.deadlines.run(call, timeout, late)
    return _in_thread(timeout, name, call, late)


def _in_thread(timeout: float, name: str, call: Callable[[], Any], late: Callable[[], Exception]) -> Any:
    """Ask in a thread of its own: a question that hangs in a worker can be left behind, for it changes nothing."""
    came: list[Any] = []
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            came.append(call())
        except BaseException as error:  # handed to who asked
            raised.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(ask,), name=f"aiflow-reconcile-{name}", daemon=True)
    thread.start()
    thread.join(timeout)
    if raised:
        raise raised[0]
    if not came:
        raise late()
    return came[0]


def _short(session: Session, text: str) -> str:
    text = session.services.host.redact(text)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
