"""
Remove what is left of runs that are over: our own reap.

Looks are statements of their own, page by page along primary keys. What removes is one transaction a batch, which locks
its executions and sees again that nothing has changed: a take-over of one locks the same row first. So it may be killed
between any two statements, and run any number of times at once.

Not covered: `question` has no index on its executions: each batch, and each execution that goes, reads all questions.
Rows of `incident` about what never ran durable, and of `upload`, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

import psycopg

from airflow_aiflow.durable.clean import CleanPlan, Scope
from airflow_aiflow.storage.connections import BoundedConnection
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.postgres_faults import wrap
from airflow_aiflow.storage.rows import Row, utc
from airflow_aiflow.storage.statements import statement

#: Rows of one look along a primary key: some milliseconds.
PAGE: Final = 5_000

#: Executions whose rows are counted at once: of those with 20,000 steps each, in a second.
COUNTED: Final = 100

#: Executions of one transaction.
BATCH: Final = 500

#: Rows of each big table that one transaction deletes: a tenth of a second, far from where a statement is given up.
MOST_ROWS: Final = 10_000

#: What ``clean_count`` counts, in its order.
COUNTS: Final = (
    "step",
    "event",
    "failed_item",
    "wasted_call",
    "label",
    "requeue",
    "incident",
    "model_wait",
    "wish",
    "question",
    "attempt",
)

#: Tables of which an execution may have very many rows, with what deletes so many of them.
_MANY: Final[tuple[tuple[str, LiteralString], ...]] = (
    ("step", "clean_steps"),
    ("event", "clean_events"),
    ("failed_item", "clean_failed_items"),
    ("wasted_call", "clean_wasted_calls"),
)

_REST: Final = ("label", "requeue", "incident", "model_wait", "wish", "question", "attempt", "execution")
_EFFECTS: Final = ("effect", "intent", "question", "word", "told")

#: Before the first id.
_NO_ID: Final = UUID(int=0)

#: Tells which runs of a DAG are gone.
Gone = Callable[[str, Collection[str]], Collection[str]]


@dataclass(frozen=True)
class CleanEffect:
    """
    Hold an effect whose current intent an execution wrote.

    :param execution_pk: which one.
    :param effect_pk: the effect.
    :param settled: whether it is neither open nor in doubt.
    :param intents: how many it has.
    :param writers: the executions that wrote them.
    """

    execution_pk: int
    effect_pk: int
    settled: bool
    intents: int
    writers: frozenset[int]


class PostgresClean(LedgerPart):
    """
    Look for what may go, and remove it.

    :param connections: lends connections; may be a ledger's own.
    """

    _writing: BoundedConnection | None = None

    def close(self) -> None:
        """Give the connections back."""
        if self._writing is not None:
            self._writing.close()
        super().close()

    def now(self) -> datetime:
        """Give the moment by the ledger's clock."""
        [(now,)] = self._ask(statement("clean_now"))
        return utc(now)

    def ended(self, scope: Scope) -> Iterator[tuple[int, str, str]]:
        """
        List the executions that ended before the moment, with DAG id and run id.

        :param scope: which.
        """
        yield from self._along("clean_page", scope, 0)

    def held(self, executions: Sequence[int], scope: Scope) -> dict[int, str]:
        """
        Tell which executions must stay, and why: a key of ``LEFT``.

        :param executions: some of them.
        """
        params = {"ids": list(executions), "before": scope.before}
        return {row[0]: row[1] for row in self._ask(statement("clean_held"), params)}

    def counts(self, executions: Sequence[int]) -> dict[int, list[tuple[str, int]]]:
        """
        Count the rows of executions, by table.

        :param executions: some of them.
        """
        found = self._ask(statement("clean_count"), {"ids": list(executions)})
        return {row[0]: list(zip(COUNTS, row[1:], strict=True)) for row in found}

    def effects(self, executions: Sequence[int]) -> list[CleanEffect]:
        """
        List the effects whose current intents executions wrote.

        :param executions: some of them.
        """
        return [_effect(row) for row in self._ask(statement("clean_effects"), {"ids": list(executions)})]

    def former(self) -> Iterator[int]:
        """List the executions that wrote an intent of an effect which another execution has taken up."""
        after = 0
        while True:
            [(last, executions)] = self._ask(statement("clean_former"), {"after": after, "most": PAGE})
            if last is None:
                return
            yield from executions
            after = last

    def carry_sums_on(self, before: datetime) -> None:
        """
        Take what was recorded before a moment into the sums by day and into the running totals.

        :param before: the moment.
        """
        while True:
            [(since, till)] = self._ask(statement("tally_window"))
            if since >= before or since >= till:
                return
            self._ask(statement("tally_take"), {"since": since, "till": till})

    def remove(self, executions: Sequence[int], plan: CleanPlan, scope: Scope) -> tuple[Counter[str], bool]:
        """
        Remove a batch in one transaction, or a part of it where it has very many rows.

        :param executions: at most ``BATCH`` of the plan's.
        :param plan: what was found.
        :param scope: what it was found for.
        :return: the rows that are gone, by table; whether to call it again for the same ones.
        """
        removed: Counter[str] = Counter()
        with self._transaction() as cursor:
            found = cursor.execute(
                statement("clean_lock"), {"ids": list(executions), "before": scope.before}
            ).fetchall()
            ids = [row[0] for row in found]
            held = cursor.execute(statement("clean_held"), {"ids": ids, "before": scope.before}).fetchall()
            ids = sorted(set(ids) - {row[0] for row in held})
            effects = [_effect(row) for row in cursor.execute(statement("clean_effects"), {"ids": ids}).fetchall()]
            here = Counter(one.execution_pk for one in effects)
            # One whose effect has another writer since: it has to stay, and is found by its former intent next time.
            ids = [one for one in ids if here[one] == plan.effects.get(one, 0)]
            for table, name in _MANY:
                removed[table] += cursor.execute(statement(name), {"ids": ids, "most": MOST_ROWS}).rowcount
            if any(number >= MOST_ROWS for number in removed.values()):
                return removed, True
            if scope.effects:
                going = [one.effect_pk for one in effects if one.settled and one.writers <= plan.over]
                _add(removed, _EFFECTS, cursor, statement("clean_effects_remove"), {"ids": ids, "effects": going})
            former = [one for one in ids if one in plan.former]
            seen = [one.effect_pk for one in effects], [one.execution_pk for one in effects]
            params = {"ids": ids, "former": former, "effects": seen[0], "writers": seen[1]}
            _add(removed, _REST, cursor, statement("clean_rest"), params)
        return removed, False

    def remove_submissions(self, scope: Scope, gone: Gone) -> Counter[str]:
        """
        Remove submissions of which nothing is left, and what was told of submissions that are gone.

        :param scope: which.
        :param gone: tells which runs of a DAG are gone.
        """
        removed: Counter[str] = Counter()
        for page in _pages(self._along("clean_submissions", scope, _NO_ID)):
            params = {"ids": _of_gone_runs(page, gone), "before": scope.before}
            removed["submission"] += len(self._ask(statement("clean_submissions_remove"), params))
        after = _NO_ID
        while True:
            params = {"after": after, "most": PAGE, "before": scope.before}
            [(last, number)] = self._ask(statement("clean_callbacks"), params)
            if last is None:
                return removed
            removed["callback"] += number
            after = last

    def remove_budgets(self, scope: Scope, gone: Gone) -> Counter[str]:
        """
        Remove budgets of tasks of which nothing is left that was paid.

        :param scope: which.
        :param gone: tells which runs of a DAG are gone.
        """
        removed: Counter[str] = Counter()
        for page in _pages(self._along("clean_budgets", scope, 0)):
            params = {"ids": _of_gone_runs(page, gone), "before": scope.before}
            removed["budget"] += len(self._ask(statement("clean_budgets_remove"), params))
        return removed

    def _along(self, name: LiteralString, scope: Scope, after: Any) -> Iterator[tuple[Any, str, str]]:
        """Go along a primary key: of each page come the rows that are old, and its last one, to go on from."""
        while True:
            params = {"after": after, "most": PAGE, "before": scope.before, "dag_ids": scope.dag_ids}
            rows = self._ask(statement(name), params)
            if not rows:
                return
            for key, dag_id, run_id, old in rows:
                if old:
                    yield key, dag_id, run_id
            after = rows[-1][0]

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[Row]]:
        try:
            if self._writing is None:
                conninfo = self._connections.conninfo
                self._writing = BoundedConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
            with self._writing.transaction(), self._writing.cursor() as cursor:
                yield cursor
        except psycopg.Error as fault:
            raise wrap(fault, self._connections.where) from fault


def _effect(row: Row) -> CleanEffect:
    return CleanEffect(row[0], row[1], row[2], row[3], frozenset(row[4] or ()))


def _add(
    removed: Counter[str], tables: Sequence[str], cursor: psycopg.Cursor[Row], text: LiteralString, params: Any
) -> None:
    [row] = cursor.execute(text, params).fetchall()
    for table, number in zip(tables, row, strict=True):
        removed[table] += number


def _pages(rows: Iterator[tuple[Any, str, str]]) -> Iterator[list[tuple[Any, str, str]]]:
    page: list[tuple[Any, str, str]] = []
    for row in rows:
        page.append(row)
        if len(page) == BATCH:
            yield page
            page = []
    if page:
        yield page


def _of_gone_runs(page: Sequence[tuple[Any, str, str]], gone: Gone) -> list[Any]:
    by_dag: dict[str, set[str]] = {}
    for _, dag_id, run_id in page:
        by_dag.setdefault(dag_id, set()).add(run_id)
    away = {dag_id: set(gone(dag_id, run_ids)) for dag_id, run_ids in by_dag.items()}
    return [key for key, dag_id, run_id in page if run_id in away[dag_id]]
