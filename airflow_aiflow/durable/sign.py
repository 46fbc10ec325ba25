"""
Read from two attempts' counters what happened between them.

A pure function over what was measured on Airflow 3.3 (first match wins). Effects never depend on the sign; only the
generation does.
"""

from __future__ import annotations

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


def begins_generation(sign: Sign, on_clear: OnClear) -> bool:
    """
    Decide whether an attempt starts anew instead of resuming.

    Not covered: ``on_clear="auto"`` resumes after every clear; telling a clear of a heard success from the rest needs
    the evidence of upstream tasks.

    :param sign: what the counters say.
    :param on_clear: the author's word.
    """
    return sign is Sign.MADE_AGAIN or (sign is Sign.CLEARED and on_clear == "fresh")
