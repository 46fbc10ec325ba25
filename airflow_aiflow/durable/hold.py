"""
How a run is held: it is due in another century until it is let go, which nobody but a scheduler minds.

Airflow starts nothing of a run before its ``run_after``, whatever state it is in. The shift is always the same, so that
it is taken back exactly, by whoever comes to it: an attempt that begins in between reads the true moment.
"""

from __future__ import annotations

from datetime import datetime, timedelta

#: By how much: a whole century, so that the calendar day stays nearly the same for who reads it.
SHIFT = timedelta(days=36525)

#: What is due from then on is held.
FIRST_YEAR = 2100

#: Why an attempt parked, as the ledger keeps it.
HELD = "the run is held by a person"

#: As what an attempt ends whose run was cancelled.
CANCELLED = "the run was cancelled by a person"


def is_held(run_after: datetime) -> bool:
    """
    Say whether a run is held.

    :param run_after: Airflow's.
    """
    return run_after.year >= FIRST_YEAR


def held(run_after: datetime) -> datetime:
    """
    Give the moment that holds a run; twice is once.

    :param run_after: Airflow's.
    """
    return run_after if is_held(run_after) else run_after + SHIFT


def freed(run_after: datetime) -> datetime:
    """
    Give the true moment; twice is once.

    :param run_after: Airflow's, held or not.
    """
    return run_after - SHIFT if is_held(run_after) else run_after
