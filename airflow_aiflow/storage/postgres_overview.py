"""
A whole deployment in PostgreSQL as people read it, at a cost that does not grow with the ledger.

Days come from sums that the tally carries on; everything else from small tables, by keys and by the latest rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import FAIL
from airflow_aiflow.durable.overview import BatchView, DagSums, Hit, RecoveryView, RunSums, SaidView
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.exceptions import PayloadError
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.rows import Row, utc
from airflow_aiflow.storage.statements import statement

#: Latest incidents that are looked at for the time of detection.
MOST_DETECTIONS = 2_000

#: Hours for which an ended batch is shown, executions of that time that are looked at, and latest events of each.
BATCH_HOURS, MOST_ENDED, MOST_EVENTS = 24, 500, 200

#: Finds of one kind.
MOST_HITS = 50

#: Executions with a label that are looked through: one task's map indexes alone may be a thousand.
MOST_LABELLED = 1_000

#: What a map says of itself, after its name (``runtime.map_report``); an author's own progress says it otherwise.
_OF_A_MAP = re.compile(r"(.+): [\d,]+(?: of [\d,]+ \(\d+ %\))?, [\d,.]+ items/(?:s|min)\b")


class PostgresOverview:
    """
    Read what concerns many executions.

    :param connections: lends connections; may be a ledger's own.
    :param cipher: opens encrypted payloads.
    """

    def __init__(self, connections: Connections, cipher: PayloadCipher) -> None:
        self._ask = connections.ask
        self._cipher = cipher

    def days(self, days: int) -> list[DagSums]:
        """
        Sum up the last days of every DAG.

        :param days: today is one of them; a day is one in UTC.
        """
        return [DagSums(*row) for row in self._ask(statement("days"), {"days": days})]

    def detections(self, days: int) -> list[tuple[str, float]]:
        """
        Tell how long the latest stalls were not seen.

        :param days: how far back.
        :return: (DAG, seconds).
        """
        rows = self._ask(statement("detections"), {"days": days, "limit": MOST_DETECTIONS})
        return [(row[0], row[1]) for row in rows]

    def run_sums(self, dag_id: str, run_ids: Sequence[str]) -> dict[str, RunSums]:
        """
        Sum up some runs of a DAG.

        :param dag_id: the DAG.
        :param run_ids: the runs.
        :return: by run; one of which nothing ran durable is left out.
        """
        rows = self._ask(statement("run_sums"), {"dag_id": dag_id, "run_ids": list(run_ids)})
        return {row[0]: RunSums(row[0], utc(row[1]), *row[2:]) for row in rows}

    def recoveries(self, dag_ids: Sequence[str], *, before: int, limit: int) -> list[RecoveryView]:
        """
        List what recovery found, the latest first.

        :param dag_ids: of these DAGs.
        :param before: only numbers below this one.
        :param limit: at most so many.
        """
        params = {"dag_ids": list(dag_ids), "before": before, "limit": limit}
        return [
            RecoveryView(
                number=row[0],
                found_at=utc(row[1]),
                kind=row[2],
                basis=row[3],
                execution=ExecutionId(*row[4:8]),
                why=row[8],
                decision=row[9],
                gone_on_at=None if row[10] is None else utc(row[10]),
                detect_seconds=row[11],
                host=row[12],
                died_in=row[13],
            )
            for row in self._ask(statement("recovery_feed"), params)
        ]

    def batches(self, dag_ids: Sequence[str]) -> list[BatchView]:
        """
        List maps in progress, and those that ended of late.

        A map says how far it is where it has more than some fifty items or takes half a minute; others are not shown.

        :param dag_ids: of these DAGs.
        """
        params = {"dag_ids": list(dag_ids), "hours": BATCH_HOURS, "most": MOST_ENDED, "events": MOST_EVENTS}
        told: dict[tuple[int, str], list[tuple[Row, int, int | None]]] = {}
        for row in self._ask(statement("batches"), params):
            progress = self._progress(bytes(row[12]))
            if progress is not None:
                name, done, total = progress
                told.setdefault((row[6], name), []).append((row, done, total))
        executions = sorted({pk for pk, _ in told})
        rows = self._ask(statement("batch_failed"), {"executions": executions}) if executions else []
        failed = {(row[0], row[1]): row[2] for row in rows}
        found = [_batch(name, each, failed.get((pk, name), 0)) for (pk, name), each in told.items()]
        return sorted(found, key=lambda one: (one.ended_at is not None, -one.started_at.timestamp()))

    def _progress(self, data: bytes) -> tuple[str, int, int | None] | None:
        """Read what a map told; an author's own progress, and what can't be opened here, are nothing."""
        try:
            plain = decode(self._cipher.open(data, "an event"))
        except PayloadError:
            return None
        if not isinstance(plain, dict) or not isinstance(plain.get("done"), int):
            return None
        told = _OF_A_MAP.match(str(plain.get("message")))
        total = plain.get("total")
        return None if told is None else (told[1], plain["done"], total if isinstance(total, int) else None)

    def said(self, dag_ids: Sequence[str], *, limit: int) -> list[SaidView]:
        """
        List what persons said, the latest first.

        :param dag_ids: about executions of these DAGs.
        :param limit: at most so many.
        """
        params = {"dag_ids": list(dag_ids), "limit": limit, "fail": FAIL}
        return [
            SaidView(
                number=row[0],
                at=utc(row[1]),
                by=row[2],
                said=row[3],
                what=row[4],
                name=row[5],
                key=row[6],
                namespace=row[7],
                state=row[8],
                subject=row[9],
                note=row[10],
                execution=ExecutionId(*row[11:15]),
            )
            for row in self._ask(statement("said"), params)
        ]

    def runs_called(self, run_id: str, dag_ids: Sequence[str]) -> list[Hit]:
        """
        Find the executions of runs by their id.

        :param run_id: the run's.
        :param dag_ids: of these DAGs.
        """
        params = {"run_id": run_id, "dag_ids": list(dag_ids), "limit": MOST_HITS}
        return [Hit("run", row[1], ExecutionId(*row)) for row in self._ask(statement("search_runs"), params)]

    def runs_labelled(self, name: str, value: str, dag_ids: Sequence[str]) -> list[Hit]:
        """
        Find tasks of runs by a label, the newest first.

        :param name: the label's.
        :param value: the label's.
        :param dag_ids: of these DAGs.
        """
        params = {"name": name, "value": value, "dag_ids": list(dag_ids), "most": MOST_LABELLED, "limit": MOST_HITS}
        return [Hit("run", row[1], ExecutionId(*row)) for row in self._ask(statement("search_labels"), params)]

    def artifacts(self, beginning: bytes, dag_ids: Sequence[str]) -> list[Hit]:
        """
        Find who recorded an artifact.

        :param beginning: of its address, or all of it.
        :param dag_ids: of these DAGs.
        """
        last = beginning + b"\xff" * (32 - len(beginning))
        first = beginning + b"\x00" * (32 - len(beginning))
        params = {"first": first, "last": last, "dag_ids": list(dag_ids), "limit": MOST_HITS}
        return [
            Hit("artifact", row[4], ExecutionId(*row[:4]), row[6], None if row[5] is None else bytes(row[5]))
            for row in self._ask(statement("search_artifact"), params)
        ]


def _batch(name: str, told: Sequence[tuple[Row, int, int | None]], failed: int) -> BatchView:
    row, done, total = told[-1]
    first, first_done, _ = told[0]
    took = (row[11] - first[11]).total_seconds()
    rate = None
    if took > 0 and done > first_done:
        rate = (done - first_done) / took
    elif (since := (row[11] - row[10]).total_seconds()) > 0:
        rate = done / since
    over = total is not None and done >= total
    ended_at = row[11] if over else row[9]
    return BatchView(
        execution=ExecutionId(*row[:4]),
        state=row[4],
        live=row[5] and not over,
        name=name,
        done=done,
        total=total,
        failed=failed,
        rate=rate,
        started_at=utc(row[10]),
        ended_at=None if ended_at is None else utc(ended_at),
    )
