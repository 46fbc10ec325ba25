"""
What may be removed of runs that are over: the words, and the moment before which a run must have ended.

An execution goes that is over since before that moment, waits for nobody, and whose DAG run Airflow no longer has: as
long as Airflow has the run it can be cleared, and a clear has to find what was recorded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from airflow_aiflow.exceptions import AiflowConfigError

#: Run of a DAG: DAG id and run id.
Run = tuple[str, str]

#: Why an execution that ended before the moment is left as it is.
LEFT: Final[Mapping[str, str]] = {
    "run": "Airflow still has the run, which can be cleared",
    "dag": "Airflow does not know the DAG; name it by --dag-id to remove its executions all the same",
    "lease": "a task of its run is at work",
    "effect": "an effect is open or in doubt: see `aiflow effects list --in-doubt`",
    "question": "a question waits for an answer",
    "requeue": "a requeue is under way",
    "call": "a model call may be at work",
    "submission": "its submission's key is still taken, or the submission has not ended before the moment",
}

_AGO: Final = re.compile(r"(\d+)(d|h|m)")
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes"}


@dataclass(frozen=True)
class Scope:
    """
    Hold what is to be removed.

    :param before: executions that ended before this moment, by the ledger's clock.
    :param dag_ids: of these DAGs alone; ``None``: of all.
    :param effects: settled effects as well, which lets a later call with their key happen again.
    """

    before: datetime
    dag_ids: list[str] | None = None
    effects: bool = False


@dataclass
class CleanPlan:
    """
    Hold what was found to be removable, and what is left as it is.

    :param executions: by number, each with its run.
    :param over: all executions that nothing holds and whose run is gone, also those of which nothing is left to remove.
    :param effects: how many effects' current intents an execution wrote, where it wrote any.
    :param former: executions that wrote an intent of an effect that another one has taken up.
    :param rows: DAG id -> table -> rows that will go.
    :param left: reason, a key of ``LEFT`` -> executions.
    """

    executions: dict[int, Run] = field(default_factory=dict)
    over: frozenset[int] = frozenset()
    effects: dict[int, int] = field(default_factory=dict)
    former: frozenset[int] = frozenset()
    rows: dict[str, Counter[str]] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)
    unknown_dags: list[str] = field(default_factory=list)

    def count(self, execution_pk: int, counts: Iterable[tuple[str, int]]) -> None:
        """
        Add rows of one of its executions.

        :param execution_pk: which one.
        :param counts: rows by table.
        """
        mine = self.rows.setdefault(self.executions[execution_pk][0], Counter())
        for table, number in counts:
            mine[table] += number


def moment_before(text: str, now: datetime) -> datetime:
    """
    Read a day, a moment, or how long ago one is.

    :param text: such as ``2026-08-01``, ``2026-08-01T06:00+02:00`` or ``90d`` (also ``h`` and ``m``); UTC where no zone
        is given.
    :param now: by the ledger's clock.
    :raises AiflowConfigError: if it is none of these, or not in the past.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            found = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        elif len(text) == len("2026-08-01"):
            found = datetime.combine(date.fromisoformat(text), time(), UTC)
        else:
            found = datetime.fromisoformat(text)
            found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise AiflowConfigError(
            f"--before {text!r} is no day (2026-08-01), no moment (2026-08-01T06:00+02:00) and no time ago (90d, 12h, "
            "30m)"
        ) from None
    if found > now:
        raise AiflowConfigError(f"--before {text!r} is in the future: what has not ended yet is never removed")
    return found
