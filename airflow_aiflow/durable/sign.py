"""
Read from two attempts' counters what happened between them.

A pure function over what was measured on Airflow 3.3 (first match wins). Effects never depend on the sign; only the
generation does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_aiflow.durable.attempt import Counters, OnClear


class Sign(StrEnum):
    """Name what an attempt is, seen from the one that is stored."""

    FIRST = "first"  # nothing is stored
    SAME = "same"  # the same attempt goes on: reschedule, deferral, answer, restarted process
    RETRY = "retry"  # Airflow's automatic retry
    AMBIGUOUS = "ambiguous"  # only clear_number grew: another task may have been cleared; treated as a retry
    CLEARED = "cleared"  # this task was cleared
    MADE_AGAIN = "made_again"  # the run was deleted and made again under the same run_id
    OLDER = "older"  # an older attempt that started late: refused


def read_sign(stored: Counters | None, now: Counters) -> Sign:
    """
    Compare an attempt with the last one that the ledger knows.

    :param stored: the last attempt's counters, ``None`` where there is none.
    :param now: the attempt that wants to start.
    :return: the sign.
    """
    if stored is None:
        return Sign.FIRST
    if now.ti_id == stored.ti_id and now.try_number == stored.try_number:
        return Sign.SAME
    if now.clear_number < stored.clear_number or now.run_after != stored.run_after:
        return Sign.MADE_AGAIN
    if now.try_number > stored.try_number:
        return _later(stored, now)
    # A UUIDv7 sorts by the moment at which Airflow made the task instance.
    if now.ti_id != stored.ti_id and now.ti_id.int > stored.ti_id.int:
        return Sign.MADE_AGAIN
    return Sign.OLDER


def _later(stored: Counters, now: Counters) -> Sign:
    if now.clear_number == stored.clear_number:
        return Sign.RETRY
    if now.max_tries != stored.max_tries:
        return Sign.CLEARED
    return Sign.AMBIGUOUS


def is_requeue(now: Counters, requeued_at: tuple[int, int] | None) -> bool:
    """
    Say whether a clear was our own recovery's.

    :param now: the attempt that wants to start.
    :param requeued_at: the run's clear number as recovery saw it when it marked the execution, and what our clears in
        that run have made of it since; ``None``: no open mark.
    :return: whether no clear but ours came after the mark: one more is a person's, who wins.
    """
    return requeued_at is not None and requeued_at[0] < now.clear_number <= requeued_at[1]


def is_top(stored: bytes | None, now: bytes | None) -> bool:
    """
    Say whether a cleared task is the top of the clear: nothing above it ran again since its last attempt began.

    What could not be read, then or now, is no evidence of either. Such a task counts as below the top and replays: a
    wrong replay gives the recorded result of the same inputs and costs nothing, and ``on_clear="fresh"`` is there for
    who wants more; a wrong fresh start pays for every model call again.

    Not covered: a task that started before its upstreams had all ended (``trigger_rule="one_success"``) saw less than
    the next one does; it counts as below the top.

    :param stored: the last attempt's digest of what had run above it.
    :param now: the same of the attempt that wants to start.
    """
    return now is not None and now == stored


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    Hold what a cleared task's start is decided on, beside the sign and the author's word.

    :param heard: whether Airflow had been told of the last attempt's success, so that who cleared it saw it.
    :param top: whether the task is the top of the clear.
    :param requeued: whether our own recovery made the clear.
    :param wish: what who made the clear asked of it; ``None``: nothing.
    """

    heard: bool = False
    top: bool = False
    requeued: bool = False
    wish: OnClear | None = None


def begins_generation(sign: Sign, on_clear: OnClear, evidence: Evidence) -> bool:
    """
    Decide whether an attempt starts anew instead of resuming.

    :param sign: what the counters say.
    :param on_clear: the author's or the run's word.
    :param evidence: of a clear.
    """
    return start(sign, on_clear, evidence)[0]


def start(sign: Sign, on_clear: OnClear, evidence: Evidence) -> tuple[bool, str | None]:
    """
    Decide whether an attempt starts anew, and say why, for people.

    A wish for a fresh start counts also where the counters leave open which task was cleared, as of one that ran.

    :return: (whether, why; ``None``: there is nothing to explain).
    """
    if sign is Sign.MADE_AGAIN:
        return True, "the run was made again: steps run again, effects are kept"
    if evidence.wish == "fresh" and sign in (Sign.CLEARED, Sign.AMBIGUOUS):
        return True, "cleared with the wish to start anew: steps run again, effects are kept"
    if sign is not Sign.CLEARED:
        return False, None
    if evidence.requeued:
        return False, "made runnable again by recovery: it resumes"
    if evidence.wish == "resume":
        return False, "cleared with the wish to resume"
    if on_clear == "auto" and evidence.heard and evidence.top:
        return True, "cleared after a success, nothing above ran again: steps run again, effects are kept"
    if on_clear == "auto" and evidence.heard:
        return False, "cleared after a success, below the top of the clear: what has the same input is not run again"
    if on_clear == "auto":
        return False, "cleared, and no success of it was seen: it resumes"
    return on_clear == "fresh", f'cleared, with on_clear="{on_clear}"'
