"""Check what every ledger and inbox checks the same way before it asks its backend."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_aiflow.durable.effect import Decision
from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.durable.inbox import Question, QuestionWrite
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import LedgerError

#: The ends that an attempt itself can write.
ENDS = frozenset({ExecutionState.SUCCEEDED, ExecutionState.FAILED, ExecutionState.PAUSED, ExecutionState.CANCELLED})


def check_sign(sign: Sign, *, seen: int | None) -> None:
    """
    Refuse a take-over that the sign forbids.

    :param sign: what the attempt is.
    :param seen: the fence on which the sign was computed.
    :raises ValueError: if the attempt is an older one, or the sign and ``seen`` contradict each other.
    """
    if sign is Sign.OLDER:
        raise ValueError("an older attempt that started late never takes an execution over")
    if (sign is Sign.FIRST) != (seen is None):
        raise ValueError(f"the sign {sign.value!r} does not fit the fence {seen!r} that it was computed on")


def check_end(state: ExecutionState, *, has_result: bool) -> None:
    """
    Refuse an end that is none of an attempt's.

    :param state: the execution's state from now on.
    :param has_result: whether a result comes with it.
    :raises ValueError: if the state is no end, or a result comes with anything but success.
    """
    if state not in ENDS:
        raise ValueError(f"an attempt ends as succeeded, failed, cancelled or paused, not as {state.value}")
    if has_result and state is not ExecutionState.SUCCEEDED:
        raise ValueError(f"an execution that ends as {state.value} has no result")


def check_decision(decision: Decision, *, has_result: bool) -> None:
    """
    Refuse a result of what did not happen.

    :param decision: about an intent.
    :param has_result: whether a result comes with it.
    :raises ValueError: if a result comes with anything but ``happened``.
    """
    if has_result and decision != "happened":
        raise ValueError(f"a decision that says {decision!r} has no result")


def check_question(question: QuestionWrite) -> None:
    """
    Refuse a question that nobody could answer, or that is about nothing.

    :param question: as asked.
    :raises ValueError: if it has no options, or lacks what its kind is about.
    """
    if not question.options:
        raise ValueError(f"question '{question.name}' has no options")
    if len(question.bound_to) != 32:
        raise ValueError(f"question '{question.name}' is bound to {len(question.bound_to)} bytes, not to 32")
    if question.kind in ("doubt", "conflict") and question.intent_id is None:
        raise ValueError(f"question '{question.name}' of kind {question.kind!r} is about no intent")
    if question.kind != "ask" and question.effect is None:
        raise ValueError(f"question '{question.name}' of kind {question.kind!r} is about no effect")


def check_person(by: str) -> None:
    """
    Refuse a word of nobody.

    :param by: who says it.
    :raises ValueError: if it is blank.
    """
    if not by.strip():
        raise ValueError("a word in the inbox needs the name of who says it")


def may_say(user: str, questions: Sequence[Question]) -> bool:
    """
    Say whether a user's word is taken on a call in doubt: by one of the tasks that wait for it, or no task waits.

    :param user: the id, which alone counts.
    :param questions: about the call; those that are answered wait for nothing.
    """
    waiting = [each for each in questions if each.answer is None]
    return not waiting or any(is_assigned(user, each) for each in waiting)


def is_assigned(user: str, question: Question) -> bool:
    """
    Say whether a question is a user's to answer.

    :param user: the id, which alone counts.
    """
    return not question.assigned_users or user in question.assigned_users


def not_ours(lease: Lease) -> LedgerError:
    """
    Make the error of a question asked without the right to.

    :param lease: the lease.
    """
    return LedgerError(
        f"the lease of execution {lease.execution_pk} with fence {lease.fence} has lapsed or was taken over: "
        "nothing was asked"
    )
