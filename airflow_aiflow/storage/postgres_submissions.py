"""Submissions in PostgreSQL: each method is one statement of ``sql/`` and one commit, unless it says so."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from airflow_aiflow.durable.pace import MINUTE, Pace, TooFastError
from airflow_aiflow.durable.submission import (
    Filter,
    Submission,
    SubmissionRequest,
    SubmissionState,
    may_move,
    run_id_of,
)
from airflow_aiflow.exceptions import LedgerError
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.rows import utc
from airflow_aiflow.storage.statements import statement

#: Seconds in a day.
DAY = 86_400.0

#: Rounds in which a key's window may end under us; two would have to end within one call.
ROUNDS = 10


class PostgresSubmissions(LedgerPart):
    """
    Implement the port ``Submissions``.

    :param connections: lends connections; may be a ledger's own.
    """

    #: Connections of an API server's worker: each request asks one thing after the other.
    POOL_SIZE = 4

    def submit(
        self, request: SubmissionRequest, *, window_days: float, pace: Pace | None = None
    ) -> tuple[Submission, bool]:
        """Write the outbox row, or find the one that the key has already: two or three statements."""
        identity, refused_at = request.identity, None
        paced = {"step": None if pace is None else pace.step, "burst": MINUTE, "user": request.user}
        for _ in range(ROUNDS):
            found = self._ask(statement("submission_key"), {"identity": identity})
            window, known, over = found[0] if found else (0, None, True)
            if not over:
                return self._present(known), False
            if pace is not None and window == refused_at:
                # Nobody else has the key: it was the pace.
                raise TooFastError(pace, self._ask(statement("submission_pace"), paced)[0][0])
            new, refused_at = uuid7(), window
            if self._ask(statement("submission_submit"), paced | _row(new, request, window + 1, window_days)):
                return self._present(new), True
        raise LedgerError(
            f"the key {request.key!r} of {request.pipeline} changes faster than it can be read; try again"
        )

    def find(self, request: SubmissionRequest) -> Submission | None:
        """Give the one whose key this is now: two statements."""
        found = self._ask(statement("submission_key"), {"identity": request.identity})
        return self.get(found[0][1]) if found and not found[0][2] else None

    def get(self, submission_id: UUID) -> Submission | None:
        """Give one."""
        found = self._ask(statement("submission_get"), {"submission_id": submission_id})
        return _submission(found[0]) if found else None

    def page(self, wanted: Filter) -> list[Submission]:
        """List some, the newest first."""
        params = {
            "after": wanted.after,
            "users": None if wanted.users is None else list(wanted.users),
            "dag_ids": None if wanted.pipelines is None else list(wanted.pipelines),
            "state": wanted.state,
            "label": None if wanted.label is None else Jsonb({wanted.label[0]: wanted.label[1]}),
            "since": wanted.since,
            "until": wanted.until,
            "limit": wanted.limit,
        }
        return [_submission(row) for row in self._ask(statement("submission_page"), params)]

    def unmade(self, *, older_than: float, limit: int = 100) -> list[Submission]:
        """List outbox rows whose run was not made."""
        params = {"older_than": older_than, "limit": limit}
        return [_submission(row) for row in self._ask(statement("submission_unmade"), params)]

    def made(self, submission_id: UUID) -> None:
        """Note that the DAG run is there."""
        self._ask(statement("submission_made"), {"submission_id": submission_id})

    def refuse(self, submission_id: UUID, why: str) -> None:
        """Note that no run can be made."""
        self._ask(statement("submission_refuse"), {"submission_id": submission_id, "why": why})

    def put_off(self, submission_id: UUID) -> None:
        """Note that the run could not be made now."""
        self._ask(statement("submission_put_off"), {"submission_id": submission_id})

    def late(self, *, older_than: float, limit: int = 100) -> list[Submission]:
        """List rows that were cancelled before their run was made."""
        params = {"older_than": older_than, "limit": limit}
        return [_submission(row) for row in self._ask(statement("submission_late"), params)]

    def checked(self, submission_id: UUID) -> None:
        """Note that one which was cancelled before its run was made has none, or none any more."""
        self._ask(statement("submission_checked"), {"submission_id": submission_id})

    def pressing(self, *, limit: int = 100) -> list[Submission]:
        """List those whose end somebody waits for without looking."""
        return [_submission(row) for row in self._ask(statement("submission_pressing"), {"limit": limit})]

    def moved(self, submission_id: UUID, old: SubmissionState, new: SubmissionState, *, retry: bool = False) -> bool:
        """Move it, where it still is in ``old`` and the move is legal."""
        if not may_move(old, new, retry=retry):
            return False
        return bool(self._moved([submission_id], [old], [new], retry=retry))

    def moved_many(self, moves: Sequence[tuple[Submission, SubmissionState]]) -> dict[UUID, datetime | None]:
        """Move many, each where it still stands as it is given and the move is legal."""
        legal = [(one, new) for one, new in moves if may_move(one.state, new)]
        if not legal:
            return {}
        ids, olds = [one.submission_id for one, _ in legal], [one.state for one, _ in legal]
        return self._moved(ids, olds, [new for _, new in legal], retry=False)

    def _moved(
        self, ids: list[UUID], olds: list[SubmissionState], news: list[SubmissionState], *, retry: bool
    ) -> dict[UUID, datetime | None]:
        params = {
            "submission_ids": ids,
            "olds": [old.value for old in olds],
            "news": [new.value for new in news],
            "retry": retry,
        }
        rows = self._ask(statement("submission_moved"), params)
        return {row[0]: None if row[1] is None else utc(row[1]) for row in rows}

    def ask(self, submission_id: UUID, *, cancel: bool | None = None, hold: bool | None = None) -> bool:
        """Note a client's wish."""
        params = {"submission_id": submission_id, "cancel": cancel, "hold": hold}
        return bool(self._ask(statement("submission_ask"), params))

    def _present(self, submission_id: UUID) -> Submission:
        found = self.get(submission_id)
        if found is None:
            raise LedgerError(f"submission {submission_id} is gone from the ledger")
        return found


def uuid7() -> UUID:
    """Make an id that sorts by the time of its making (RFC 9562); pages follow it."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    number = (number & ~(0xF << 76)) | (7 << 76)
    return UUID(int=(number & ~(0x3 << 62)) | (0x2 << 62))


def _submission(row: tuple[Any, ...]) -> Submission:
    return Submission(
        submission_id=row[0],
        user=row[1],
        pipeline=row[2],
        run_id=row[3],
        key=row[4],
        window=row[5],
        fingerprint=bytes(row[6]),
        input=json.loads(bytes(row[7])),
        labels=row[8],
        priority=row[9],
        state=SubmissionState(row[10]),
        created_at=utc(row[11]),
        deadline=None if row[12] is None else utc(row[12]),
        overdue=row[13],
        made=row[14],
        refused=row[15],
        cancelling_for=row[16],
        hold_asked=row[17],
        finished_at=None if row[18] is None else utc(row[18]),
        retried=row[19],
        callback_url=row[20],
    )


def _row(new: UUID, request: SubmissionRequest, window: int, window_days: float) -> dict[str, Any]:
    return {
        "submission_id": new,
        "identity": request.identity,
        "window": window,
        "user": request.user,
        "dag_id": request.pipeline,
        "run_id": run_id_of(request.identity, window),
        "key": request.key,
        "window_s": window_days * DAY,
        "request_fp": request.fingerprint,
        "input": json.dumps(request.input, separators=(",", ":"), allow_nan=False).encode(),
        "labels": Jsonb(dict(request.labels)),
        "priority": request.priority,
        "deadline": request.deadline,
        "callback_url": request.callback_url,
    }
