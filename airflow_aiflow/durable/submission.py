"""
What a client hands in: one task for one key, its states and the moves between them.

A submission is an outbox: its row is written first, its DAG run is made from it, under a ``run_id`` that follows from
the key. So Airflow's own uniqueness holds the line, and a crash between the two is healed by making the run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Any, Literal, Protocol
from uuid import UUID

from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.identity import digest
from airflow_aiflow.durable.pace import Pace
from airflow_aiflow.exceptions import SubmissionRefusedError

#: What may stand in a key: as long as an effect's.
KEY_LIMIT = 512

#: Hexadecimal digits of a ``run_id``: 128 bits.
RUN_ID_DIGITS = 32

#: Labels of a submission, and characters of a name or value: they are for finding it again, not for data.
LABELS, LABEL_LENGTH = 20, 100

#: Levels of an input, one in the other: what reads and writes it goes down by calling itself.
DEPTH = 64

#: Years in which a deadline may lie: beyond them one may be written that can't be read again.
DEADLINE_YEARS = range(2000, 9000)


class SubmissionState(StrEnum):
    """Name the states."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether nothing moves it any more but a person's word."""
        return self in FINISHED

    @property
    def settled(self) -> bool:
        """Whether Airflow's word moves it no more: what failed may be brought back."""
        return not MOVES[self]


FINISHED = frozenset({SubmissionState.SUCCEEDED, SubmissionState.FAILED, SubmissionState.CANCELLED})

_Q, _R, _P = SubmissionState.QUEUED, SubmissionState.RUNNING, SubmissionState.PAUSED
_S, _F, _C = SubmissionState.SUCCEEDED, SubmissionState.FAILED, SubmissionState.CANCELLED

#: From which state to which ones Airflow's word alone moves it.
MOVES: Mapping[SubmissionState, frozenset[SubmissionState]] = {
    _Q: frozenset({_R, _P, _S, _F, _C}),
    _R: frozenset({_Q, _P, _S, _F, _C}),
    _P: frozenset({_Q, _R, _S, _F, _C}),
    _S: frozenset(),
    # Recovery, or a person in Airflow's own pages, brings a failed run back.
    _F: frozenset({_Q, _R, _P, _S, _C}),
    _C: frozenset(),
}

#: From which states a person's explicit retry queues it again.
RETRIED_FROM = frozenset({_S, _F, _C})

#: What a client may ask of a submission, and what is answered in each state: it is done, it is so already, or it makes
#: no sense. A repeat of what was done is never refused.
Wish = Literal["cancel", "pause", "resume", "retry"]
Answer = Literal["done", "already", "refused"]

ANSWERS: Mapping[Wish, Mapping[SubmissionState, Answer]] = {
    "cancel": {_Q: "done", _R: "done", _P: "done", _S: "refused", _F: "refused", _C: "already"},
    "pause": {_Q: "done", _R: "done", _P: "done", _S: "refused", _F: "refused", _C: "refused"},
    "resume": {_Q: "done", _R: "done", _P: "done", _S: "refused", _F: "refused", _C: "refused"},
    "retry": {_Q: "refused", _R: "refused", _P: "refused", _S: "done", _F: "done", _C: "done"},
}


def answer(submission: Submission, wish: Wish) -> Answer:
    """
    Say what is answered to a wish.

    :param submission: as it stands.
    :param wish: what a client asks.
    """
    if not submission.state.finished:
        if wish == "retry" and submission.retried:
            return "already"
        if wish in ("pause", "resume") and submission.cancel_asked:
            return "refused"
    return ANSWERS[wish][submission.state]


def may_move(old: SubmissionState, new: SubmissionState, *, retry: bool = False) -> bool:
    """
    Say whether a move is legal.

    :param old: the state that stands.
    :param new: the state that was seen.
    :param retry: whether a person asked for it by ``:retry``.
    """
    if retry:
        return old in RETRIED_FROM and new is SubmissionState.QUEUED
    return new in MOVES[old]


@dataclass(frozen=True, slots=True)
class SubmissionRequest:
    """
    Hold what a client hands in.

    :param user: who, as Airflow knows it; two users' keys never meet.
    :param pipeline: the DAG.
    :param input: its params: plain JSON.
    :param key: idempotency key.
    :param labels: names and values to find it by.
    :param priority: greater first; for the order in which runs are made.
    :param deadline: after which it is cancelled.
    :param callback_url: whom to tell how it ended.
    """

    user: str
    pipeline: str
    input: Mapping[str, Any]
    key: str
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    deadline: datetime | None = None
    callback_url: str | None = None

    def __post_init__(self) -> None:
        if not self.key.strip() or len(self.key) > KEY_LIMIT or not self.key.isprintable():
            raise SubmissionRefusedError(
                f"idempotency_key must have 1 to {KEY_LIMIT} printable characters, got {len(self.key)}",
                "/idempotency_key",
            )
        if len(self.labels) > LABELS:
            raise SubmissionRefusedError(f"at most {LABELS} labels are kept, got {len(self.labels)}", "/labels")
        for name, value in self.labels.items():
            if not 1 <= len(name) <= LABEL_LENGTH or len(value) > LABEL_LENGTH:
                raise SubmissionRefusedError(
                    f"a label's name and value have at most {LABEL_LENGTH} characters", f"/labels/{pointer(name)}"
                )
        check_plain(self.labels, "/labels")
        check_plain(self.input, "/input")
        # The first and last days of the calendar have no time in UTC.
        if self.deadline is not None and self.deadline.year not in DEADLINE_YEARS:
            raise SubmissionRefusedError(
                f"deadline must lie in the years {DEADLINE_YEARS[0]} to {DEADLINE_YEARS[-1]}", "/deadline"
            )

    @property
    def identity(self) -> bytes:
        """Whose key of which pipeline it is: 32 bytes."""
        return digest("submission", self.user, self.pipeline, self.key)

    @property
    def fingerprint(self) -> bytes:
        """Over what makes two requests the same: the input alone, since all else may be given anew."""
        return fingerprint("submission", dict(self.input))


def run_id_of(identity: bytes, window: int) -> str:
    """
    Derive the ``run_id``, so that two makers of one run meet.

    :param identity: of the request.
    :param window: which use of the key this is; a key may be used again once its window is over.
    """
    return f"aiflow__{digest(identity, window).hex()[:RUN_ID_DIGITS]}"


def pointer(name: str) -> str:
    """
    Write a name as a part of a JSON pointer (RFC 6901).

    :param name: of a member.
    """
    return name.replace("~", "~0").replace("/", "~1")


def check_plain(value: Any, where: str) -> None:
    """
    Refuse what Airflow's database can't keep: it would be taken here, and its run could never be made.

    :param value: JSON, decoded.
    :param where: JSON pointer of it.
    :raises SubmissionRefusedError: at U+0000, a lone surrogate, a number that is none, or too many levels.
    """
    todo: list[tuple[Any, str, int]] = [(value, where, 0)]
    while todo:
        one, place, depth = todo.pop()
        if depth > DEPTH:
            raise SubmissionRefusedError(f"at most {DEPTH} levels are taken", place)
        if isinstance(one, str):
            if "\0" in one or any("\ud800" <= each <= "\udfff" for each in one):
                raise SubmissionRefusedError("text must hold neither U+0000 nor a lone surrogate", place)
        elif isinstance(one, float):
            if not isfinite(one):
                raise SubmissionRefusedError("a number must be finite", place)
        elif isinstance(one, Mapping):
            todo += [(name, f"{place}/{pointer(name)}", depth + 1) for name in one]
            todo += [(each, f"{place}/{pointer(name)}", depth + 1) for name, each in one.items()]
        elif isinstance(one, list):
            todo += [(each, f"{place}/{number}", depth + 1) for number, each in enumerate(one)]


@dataclass(frozen=True, slots=True)
class Submission:
    """
    Hold a submission as it stands.

    :param window: which use of its key.
    :param made: whether its DAG run was made.
    :param refused: why no run could be made, for people; then it has failed.
    :param cancelling_for: seconds since somebody asked to cancel it; ``None``: nobody did.
    :param hold_asked: whether somebody asked to hold it.
    :param retried: whether somebody asked to run it again.
    :param state: as it was seen last.
    """

    submission_id: UUID
    user: str
    pipeline: str
    run_id: str
    key: str
    window: int
    fingerprint: bytes
    input: Mapping[str, Any]
    labels: Mapping[str, str]
    priority: int
    state: SubmissionState
    created_at: datetime
    deadline: datetime | None = None
    overdue: bool = False
    made: bool = False
    refused: str | None = None
    cancelling_for: float | None = None
    hold_asked: bool = False
    finished_at: datetime | None = None
    retried: bool = False
    callback_url: str | None = None

    @property
    def cancel_asked(self) -> bool:
        """Whether somebody asked to cancel it."""
        return self.cancelling_for is not None

    @property
    def run(self) -> tuple[str, str]:
        """Its run: DAG id and run id."""
        return self.pipeline, self.run_id


@dataclass(frozen=True, slots=True)
class Filter:
    """
    Say which submissions are listed, the newest first.

    :param users: whose; ``None``: everybody's.
    :param pipelines: of which DAGs; ``None``: of all.
    :param after: the id of the last one of the page before.
    """

    users: tuple[str, ...] | None = None
    pipelines: tuple[str, ...] | None = None
    state: SubmissionState | None = None
    label: tuple[str, str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: UUID | None = None
    limit: int = 50


class Submissions(Protocol):
    """Keep submissions. Each method is one commit."""

    def submit(
        self, request: SubmissionRequest, *, window_days: float, pace: Pace | None = None
    ) -> tuple[Submission, bool]:
        """
        Write the outbox row, or find the one that the key has already.

        :param window_days: for which the key is this task's.
        :param pace: of the user's new submissions; ``None``: any.
        :return: the submission, and whether it is new. Whether the input is the same is for the caller to compare.
        :raises TooFastError: if it would be new, and comes too fast.
        """

    def find(self, request: SubmissionRequest) -> Submission | None:
        """Give the one whose key this is now; ``None``: it is free."""

    def get(self, submission_id: UUID) -> Submission | None:
        """Give one."""

    def page(self, wanted: Filter) -> list[Submission]:
        """List some, the newest first."""

    def unmade(self, *, older_than: float, limit: int = 100) -> list[Submission]:
        """
        List outbox rows whose run was not made, by priority and age; not those that are held or were put off.

        :param older_than: seconds; younger ones are somebody's at this moment.
        """

    def put_off(self, submission_id: UUID) -> None:
        """Note that the run could not be made now: others come first for a while, for longer with each time."""

    def late(self, *, older_than: float, limit: int = 100) -> list[Submission]:
        """
        List rows that were cancelled before their run was made: a maker that was killed may have made it all the same.

        :param older_than: seconds since the cancel.
        """

    def checked(self, submission_id: UUID) -> None:
        """Note that one which was cancelled before its run was made has none, or none any more."""

    def pressing(self, *, limit: int = 100) -> list[Submission]:
        """
        List those whose end somebody waits for without looking: cancelled, over their deadline, with a callback, also
        where they failed within a day, and may come back.

        :param limit: of each kind.
        """

    def made(self, submission_id: UUID) -> None:
        """Note that the DAG run is there."""

    def refuse(self, submission_id: UUID, why: str) -> None:
        """Note that no run can be made: it has failed."""

    def moved(self, submission_id: UUID, old: SubmissionState, new: SubmissionState, *, retry: bool = False) -> bool:
        """
        Move it, where it still is in ``old`` and the move is legal.

        :return: whether it was moved.
        """

    def moved_many(self, moves: Sequence[tuple[Submission, SubmissionState]]) -> dict[UUID, datetime | None]:
        """
        Move many, each where it still stands as it is given and the move is legal; in one statement.

        :return: of those that were moved, when they ended.
        """

    def ask(self, submission_id: UUID, *, cancel: bool | None = None, hold: bool | None = None) -> bool:
        """
        Note a client's wish; ``None``: leave that one as it is. A cancel takes a hold back and is final.

        :return: whether the wish stands now: what has ended is wished nothing, nor is what is cancelled held.
        """
