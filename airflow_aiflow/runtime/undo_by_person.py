"""
Take an effect back on a person's word, outside of any task.

It is done by an attempt of an execution of its own, so that lease, fence, intent and doubt hold as in a task: two
persons at once take it back once, and one who is killed in the middle leaves a doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from airflow_aiflow.durable.attempt import Attempt, Counters
from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import UNDO, person_undo
from airflow_aiflow.durable.inbox import Word
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.reconcile import Intent
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.compensation import Undoable, still_done, undo
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.process import this_owner
from airflow_aiflow.runtime.session import Services, Session

#: Seconds that a function which takes an effect back may take.
UNDO_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class PersonsUndo:
    """
    Hold a person's word that an effect is to be taken back.

    :param number: of the intent that succeeded: what was done meanwhile is not taken back.
    :param compensate: called as ``compensate(intent, result)``; ``None``: the person has taken it back already.
    :param by: who says so.
    :param reason: why, for those who read it later.
    """

    number: int
    compensate: Callable[..., Any] | None
    by: str
    reason: str


def by_hand(_intent: Intent, _result: Any) -> None:
    """Do nothing: the person has done it."""


def undo_by_person(services: Services, found: EffectRecord, word: PersonsUndo) -> Word:
    """
    Take an effect back.

    :param services: what an attempt works with.
    :param found: the effect, as it was looked at.
    :param word: the person's.
    :return: whether it is taken back by this word, or was before; else why not.
    :raises EffectInDoubtError: if an undo of it was begun and nobody knows whether it happened.
    :raises AttemptSuperseded: if another person is at work on it.
    """
    if found.effect.name.endswith(UNDO):
        return Word(False, f"#{word.number} is itself an undo: what it took back is done again by its task")

    def body(flow: Flow) -> Word:
        session: Session = flow._session
        session.gate.heed_nobody()  # of a run that is held or was cancelled it is taken back as well
        return _undo(session, found, word)

    return run_attempt(_attempt(services, found), services, body)


def _undo(session: Session, seen: EffectRecord, word: PersonsUndo) -> Word:
    found = session.recorder.effect(seen.effect)
    if found is None or found.state is not EffectState.SUCCEEDED or found.number != word.number:
        return Word(False, _why_not(found, word.number))
    options = EffectOptions(key=found.effect.key, on_in_doubt="hold", timeout=UNDO_TIMEOUT, retries=0)
    how = Undoable(found.effect, word.compensate or by_hand, options, by=word.by, reason=word.reason)
    if still_done(session, how, found) is not None:
        undo(session, how, found)
    return Word(True)


def _why_not(found: EffectRecord | None, number: int) -> str:
    if found is None:
        return f"there is no #{number} in this ledger"
    if found.number != number:
        return f"#{number} is not the call that counts now: that is #{found.number}. Look at it first"
    return {
        EffectState.COMPENSATED: "it was taken back already: the next call does it again",
        EffectState.RELEASED: "it is released: the next call does it again",
        EffectState.IN_DOUBT: "it is in doubt: say first whether it happened",
        EffectState.INTENDED: "the call has begun and has no outcome yet",
    }.get(found.state, "it did not happen: there is nothing to take back")


def _attempt(services: Services, found: EffectRecord) -> Attempt:
    """Describe an attempt of the execution that takes effects of a task back."""
    execution = person_undo(found.execution)
    standing = services.ledger.standing(execution)
    before = 0 if standing is None else standing.counters.try_number
    ti_id = uuid4()
    counters = Counters(ti_id, try_number=before + 1, max_tries=0, retries=0, clear_number=0, run_after=None)
    return Attempt(execution, counters, this_owner(str(ti_id)), mapped=execution.map_index >= 0)
