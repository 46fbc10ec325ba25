"""
What the flow needs from outside: ledger, artifact store, clock, host.

Each protocol has two real implementations. "Can't be read" is never "is not there": a method that can't reach its
backend raises ``LedgerUnavailableError`` or ``ArtifactUnavailableError``; ``None`` and empty mean that it looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import BinaryIO, Protocol
from uuid import UUID

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.effect import (
    Decision,
    EffectRecord,
    IntentAnswer,
    IntentWrite,
    Outcome,
    Refusals,
    Settled,
)
from airflow_aiflow.durable.execution import Beat, ExecutionState, Lease, Standing, Taken
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.inbox import Question, QuestionWrite
from airflow_aiflow.durable.items import ItemLedger
from airflow_aiflow.durable.limit import LimitLedger
from airflow_aiflow.durable.record import Batch, Kept, StepRecord, Stored
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.durable.spending import SpendingLedger


@dataclass(frozen=True, slots=True)
class Recorded:
    """Hold what an attempt replays from: the steps of its generation and the effects that its execution wrote last."""

    steps: Sequence[StepRecord]
    effects: Sequence[EffectRecord]
    #: Fence -> the running number of the attempt that held it.
    numbers: Mapping[int, int] = field(default_factory=dict)
    #: Over all steps, where there are more than ``steps`` holds; ``None``: it holds them all. Left out are only some of
    #: the kinds ``item`` and ``llm``, which a map asks for as it reaches them.
    totals: Totals | None = None

    @property
    def count(self) -> int:
        """How many steps are recorded, in memory or not."""
        return len(self.steps) if self.totals is None else self.totals.steps


@dataclass(frozen=True, slots=True)
class Totals:
    """Hold sums over the steps of a generation; the cost is in US dollars, of all calls but the unpriced ones."""

    steps: int
    calls: int
    tokens_in: int
    tokens_out: int
    cost: Decimal
    unpriced: int = 0


class Ledger(Protocol):
    """
    The only source of truth. Safe for use from several threads. Every method is one statement and one commit, and may
    be repeated after a lost acknowledgement with the same effect as once.

    Any method raises ``LedgerUnavailableError`` where the database can't be asked (the statement may or may not have
    been carried out) and ``LedgerSchemaError`` where the tables are not the ones that this code knows.
    """

    @property
    def items(self) -> ItemLedger:
        """What maps know of their items beside the results."""

    def check(self) -> None:
        """
        Compare the schema's version with the code's.

        :raises LedgerSchemaError: if it is missing, older or newer.
        :raises AiflowConfigError: if the role's settings would void a promise (isolation, commits that do not wait).
        """

    def standing(self, execution: ExecutionId) -> Standing | None:
        """Tell how an execution stands; ``None``: nobody ever took it."""

    def take_over(
        self, attempt: Attempt, *, sign: Sign, seen: int | None, new_generation: bool, ttl: float, dead: bool = False
    ) -> Taken | None:
        """
        Raise the fence, set the lease, write the attempt and settle a requeue mark, in one statement.

        Repeated after a lost acknowledgement it gives ``None``: the next ``Standing`` then shows our own owner, and
        taking over once more keeps number and generation.

        :param attempt: who takes over.
        :param sign: computed on the row with fence ``seen``; stored with the attempt.
        :param seen: the fence of the ``Standing`` on which the sign was computed; ``None``: no row was there.
        :param new_generation: whether the generation grows by one.
        :param ttl: seconds of the lease.
        :param dead: whether the owner before is verified dead: its attempt has then lapsed, whatever its lease says.
        :return: ``None`` where the fence has moved meanwhile: look again.
        :raises ValueError: if the sign is that of an older attempt.
        """

    def want(self, execution_pk: int, fence: int, newcomer: UUID) -> bool:
        """
        Ask the live owner for the lease.

        :return: whether that fence still holds a lease row.
        """

    def recorded(self, lease: Lease, generation: int) -> Recorded:
        """
        Read everything to replay from, in one query for any usual number of steps.

        Called once, after the take-over has committed.
        """

    def kept(self, lease: Lease, generation: int, step_keys: Sequence[bytes]) -> list[Kept]:
        """Read in one query what is recorded under these keys, in any order; of what is not there, nothing."""

    def step(self, lease: Lease, generation: int, step_key: bytes) -> StepRecord | None:
        """Read one step whole; ``None``: it is not recorded."""

    def beat(
        self, lease: Lease, *, ttl: float, idle: float, step: str | None, step_timeout: float | None = None
    ) -> Beat:
        """
        Renew the lease and carry the progress.

        :param idle: seconds since the attempt last made progress.
        :param step: the name of the unit in hand.
        :param step_timeout: seconds which what is in hand may take by its own word; ``None``: it names none.
        """

    def let_go(self, lease: Lease) -> None:
        """End the lease now, where it is still ours."""

    def record(self, lease: Lease, generation: int, batch: Batch) -> list[StepRecord | None]:
        """
        Write steps and events in one commit. Steps count from any fence; events only from the current one.

        :return: for each step ``None`` where it was written, else the record that was there first.
        """

    def intend(self, lease: Lease, intent: IntentWrite) -> IntentAnswer:
        """Write an intent under the locked fence. ``Intended`` also where the very same intent_id is there already."""

    def settle(self, intent_id: UUID, outcome: Outcome, *, result: Stored | None, seal: bytes | None = None) -> Settled:
        """
        Record an intent's outcome; never refused. A second outcome of one intent changes nothing.

        A late success moves the effect whatever its state; where a newer intent may have been applied as well, a double
        is suspected.

        :param result: the encoded result of a success.
        :raises LedgerError: if this ledger has no such intent (a fail-over that lost it).
        """

    def doubt(self, lease: Lease, intent_id: UUID) -> bool:
        """
        Move ``intended`` to ``in_doubt`` under our live lease, where that intent is the current one and its owner does
        not hold its lease, or is ourselves: who made the call may say that its outcome is unknown.

        :return: whether the effect is in doubt over this intent, also where it was before.
        """

    def leave(self, lease: Lease, intent_id: UUID, *, seconds: float | None) -> bool:
        """
        Note that an open call of this execution is left on purpose, or that this attempt has come back to it.

        :param seconds: for so long nobody takes it for gone; ``None``: it is in this attempt's hands from now on.
        :return: whether the lease is ours and the call is open.
        """

    def refused(self, lease: Lease, effect: EffectId) -> Refusals:
        """Count the calls that the processes of this try made in vain before this one: refused, or to be made again."""

    def decide(
        self,
        lease: Lease,
        intent_id: UUID,
        decision: Decision,
        *,
        by: str,
        result: Stored | None = None,
        seal: bytes | None = None,
    ) -> bool:
        """
        Apply an attempt's own decision (by policy or by asking the target) to the effect in doubt whose current intent
        this is. A compare-and-set: the first wins.

        :param by: who or what decided.
        :param result: with ``happened``, what the target gave.
        :param seal: over the result.
        :return: whether this decision stands, also where the same one by the same stood before.
        """

    def effect(self, effect: EffectId) -> EffectRecord | None:
        """Read one effect; ``None``: never intended."""

    def ask(self, lease: Lease, question: QuestionWrite) -> Question:
        """
        Put a question into the inbox, or find it there: the same ``bound_to`` is the same question, with its answer.

        A question without an answer notes who asks now; its time runs from the first asking.

        :raises LedgerError: if the lease is not ours and live.
        """

    def compensated(self, lease: Lease, intent_id: UUID) -> bool:
        """
        Note that what an intent did is undone: ``succeeded -> compensated``, where this intent's success counts.

        :return: whether it is compensated, also where it was before.
        """

    def release(self, lease: Lease, intent_id: UUID, *, by: str, note: str) -> bool:
        """
        Carry out a word that a done effect may be done once more: ``succeeded -> released``, where this intent's
        success counts.

        :param by: the person whose word it is, or the rule.
        :param note: the reason, for people.
        :return: whether it is released, also where it was before.
        """

    def finish(
        self,
        lease: Lease,
        state: ExecutionState,
        *,
        result: Stored | None,
        seal: bytes | None = None,
        reason: str | None = None,
    ) -> bool:
        """
        Write an attempt's end and give the lease back, where the fence is still ours.

        :param state: ``succeeded``, ``failed`` or ``paused``.
        :param reason: of a pause, one line for people.
        :return: whether the fence was ours.
        """

    def heard(self, lease: Lease) -> bool:
        """Note that Airflow knows of the success, where the fence is still ours."""

    @property
    def limits(self) -> LimitLedger:
        """The limits of model calls."""

    @property
    def spending(self) -> SpendingLedger:
        """What the ledger keeps of model calls beside their steps."""

    def close(self) -> None:
        """Give the connections back."""


class ArtifactStore(Protocol):
    """
    Immutable bytes by content hash. Putting the same bytes twice is one object. Reads verify the hash.

    Raises ``ArtifactUnavailableError`` where the store can't be asked, ``ArtifactMissingError`` where the object is not
    there, ``ArtifactDamagedError`` where its bytes do not hash to its address.
    """

    def put_value(self, data: bytes) -> bytes:
        """
        Store an encoded value, compressed.

        :return: the SHA-256 (32 bytes) of the plain bytes.
        """

    def get_value(self, sha256: bytes) -> bytes:
        """Read an encoded value back and verify it."""

    def put_file(self, stream: BinaryIO, *, media_type: str) -> tuple[bytes, int]:
        """
        Store bytes as given, so that links and ranges work; a stream that can't seek is spooled first.

        :param stream: stored whole, from its beginning, wherever it stands; from where it is, if it can't seek.
        :param media_type: ``type/subtype`` with parameters or without, in ASCII.
        :return: (SHA-256, size in bytes).
        :raises PayloadEncodeError: if the stream gives no bytes, or the media type is none.
        """

    def open_file(self, sha256: bytes) -> BinaryIO:
        """
        Open a stored file for reading once, in order. Its last bytes are given out only after the whole has been
        verified; a read that failed fails again, for what it had gathered is lost.
        """

    def uri(self, sha256: bytes) -> str:
        """Give the ``s3://`` address of a stored file."""

    def url(self, sha256: bytes, *, expires: float, name: str | None = None, media_type: str | None = None) -> str:
        """
        Give a link that works for a while without a log-in.

        :param expires: seconds, at most seven days.
        """

    def close(self) -> None:
        """Give the connections back."""


class Clock(Protocol):
    """Time, injected, so that no test sleeps."""

    def monotonic(self) -> float:
        """Give seconds since boot, time asleep included."""

    def now(self) -> datetime:
        """Give the wall clock, UTC; for people to read."""

    def wait(self, seconds: float, *, until: Callable[[], bool] | None = None) -> bool:
        """
        Wait.

        :param seconds: at most this long.
        :param until: polled meanwhile; waiting ends when it is true.
        :return: whether ``until`` became true.
        """


class Stats(Protocol):
    """
    Where figures go for dashboards. Safe for use from several threads; no method raises, and none waits.

    Names are dotted and begin with ``aiflow.``; tags are few, and their values come from code, not from data.
    """

    def count(self, name: str, number: float, tags: Mapping[str, str]) -> None:
        """
        Add to a counter.

        :param number: above 0; a whole one, but for money.
        """

    def timing(self, name: str, seconds: float, tags: Mapping[str, str]) -> None:
        """Note how long something took."""

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Set a gauge: the last one counts."""


class Host(Protocol):
    """What runs the task: Airflow, or the testing host."""

    def log(self, line: str, *, warning: bool = False) -> None:
        """Write one line of the task log."""

    def database(self, conn_id: str) -> str:
        """
        Give the address of a PostgreSQL database that an effect is to change.

        :param conn_id: a connection of type ``postgres``.
        :return: what libpq takes, the password in it.
        :raises AiflowConfigError: if there is none, or it is of another type.
        """

    def is_secret(self, text: str) -> bool:
        """Say whether a text is, or holds, a secret that the host's masker knows."""

    def redact(self, text: str) -> str:
        """Mask the secrets in a text for people."""

    def secret_words(self) -> Sequence[str]:
        """Give the words, in lower case, that say of what bears one in its name that it is a secret."""

    def ending(self, error: BaseException) -> ExecutionState | None:
        """
        Read what an exception out of the author's code means for the execution.

        :return: ``failed``, or ``paused`` and ``succeeded`` for the host's own control flow (a deferral, a skip);
            ``None``: the process was told to end, the execution stays as it is.
        """

    @property
    def may_come_back(self) -> bool:
        """Whether an attempt that ends this process itself can be handed back, so that no retry is burnt."""

    def end_process(self, why: str, *, superseded: bool = True, back_in: float | None = None) -> None:
        """
        End this process: called by the watchdog, from a thread. May not return.

        :param why: for the log.
        :param superseded: whether a later attempt is at work, which must not be harmed by what the host hears of this
            end; else the attempt is the current one.
        :param back_in: seconds after which the current attempt is to come back, where ``may_come_back`` said so;
            ``None``: it has failed.
        """
