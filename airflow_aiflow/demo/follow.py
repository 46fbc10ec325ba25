"""Look at a running review from outside: what the ledger has recorded, and which process is at work."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.storage.statements import statement

#: The DAG, its task and the names of its two kinds of model calls.
DAG, TASK = "document_review", "review"
PAGE, ASSESS = "page", "assess"


@dataclass(frozen=True, slots=True)
class Progress:
    """
    How far the review is.

    :param fence: rises with every attempt.
    :param attempt: the running number of the present attempt, from 1.
    :param ended: whether that attempt has ended by itself.
    :param pages: summaries that are recorded.
    :param assessed: documents whose verdict is recorded.
    :param fresh: model calls that the present attempt has recorded.
    :param cost: US dollars, where prices are known.
    :param result: what the task returned, encoded; ``None`` until it has succeeded.
    """

    state: str
    fence: int
    attempt: int
    owner: Owner
    ended: bool
    pages: int
    assessed: int
    fresh: int
    cost: Decimal | None
    result: bytes | None = field(repr=False)


class Follower:
    """
    Read the progress of one run.

    :param dsn: of the ledger.
    :param run_id: the run.
    :param dag: its DAG.
    :param task: the task that is followed.
    :param first: name of the steps that ``Progress.pages`` counts.
    """

    def __init__(self, dsn: str, run_id: str, *, dag: str = DAG, task: str = TASK, first: str = PAGE) -> None:
        import psycopg

        self._connection = psycopg.connect(dsn, autocommit=True)
        self._run: dict[str, Any] = {"dag_id": dag, "task_id": task, "run_id": run_id, "first": first, "then": ASSESS}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def look(self) -> Progress | None:
        """
        Read once.

        :return: ``None`` until the first attempt has taken over.
        """
        row = self._connection.execute(statement("task_progress"), self._run).fetchone()
        if row is None:
            return None
        state, fence, attempt, owner, *facts = row
        return Progress(state, fence, attempt, Owner.from_plain(owner), *facts)

    def reused_from(self) -> dict[str, int]:
        """Count the results that the run took from other runs, by the other run's id."""
        return dict(self._connection.execute(statement("reused_of_run"), self._run).fetchall())

    def found_ago(self, fence: int) -> float | None:
        """
        Say how long ago recovery found that an attempt had been lost.

        :param fence: of the attempt.
        :return: seconds; ``None``: it did not.
        """
        row = self._connection.execute(statement("found_ago"), {**self._run, "fence": fence}).fetchone()
        return None if row is None else float(row[0])
