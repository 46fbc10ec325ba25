"""
What is written down: payloads, steps, events.

A record's payload is the encoded value itself up to ``inline_limit``, above it the address of an artifact that was
stored *before* the row that names it is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

EPOCH = datetime.fromtimestamp(0, UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Stored:
    """
    Hold an encoded value as the ledger keeps it: exactly one of the two is set.

    :param inline: the encoded bytes.
    :param sha256: the address (32 bytes) of the artifact that holds the encoded bytes.
    """

    inline: bytes | None = None
    sha256: bytes | None = None

    def __post_init__(self) -> None:
        if (self.inline is None) == (self.sha256 is None):
            raise ValueError("a stored payload is either inline or an artifact")


@dataclass(frozen=True, slots=True)
class Usage:
    """Hold what a model call cost; ``cost`` is in US dollars and ``None`` where the price is unknown."""

    model: str | None = None
    response_id: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Hold a recorded step as it is written and read."""

    step_key: bytes
    kind: str  # "step", "llm" or "item"
    name: str
    unit: str
    fingerprint: bytes
    occurrence: int
    fence: int
    result: Stored
    seal: bytes
    #: The worker's clock, UTC: for people to read, never compared.
    ended_at: datetime
    duration_ms: float
    usage: Usage | None = None
    #: A short hash of each argument, in order (see ``durable.fingerprint.short_prints``): tells what has changed.
    prints: bytes | None = None
    #: Where other runs look for it; ``None``: nowhere. Written, and never read back.
    reuse_key: int | None = None
    #: Names and beginnings of its arguments (see ``durable.step_arguments``), for people: no replay reads them.
    arguments: bytes | None = None


class Kept(NamedTuple):
    """Hold of a recorded step what its replay needs: a map reads a million of them."""

    step_key: bytes
    #: The encoded result, or the address of the artifact that holds it: one of the two.
    inline: bytes | None
    sha256: bytes | None
    seal: bytes
    #: Microseconds since 1970, by the worker's clock: a million moments would take longer than all else of a row.
    ended_us: int
    fence: int
    #: Of a model call; ``None``: it was none.
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None

    @classmethod
    def of(cls, record: StepRecord) -> Kept:
        """
        Give of a record what a replay needs.

        :param record: as it is in memory.
        """
        result, usage = record.result, record.usage
        paid = (None, None, None) if usage is None else (usage.tokens_in, usage.tokens_out, usage.cost)
        ended_us = (record.ended_at - EPOCH) // MICROSECOND
        return cls(record.step_key, result.inline, result.sha256, record.seal, ended_us, record.fence, *paid)

    @property
    def ended_at(self) -> datetime:
        """When it ended, by the worker's clock."""
        return EPOCH + self.ended_us * MICROSECOND


@dataclass(frozen=True, slots=True)
class SharedStep:
    """Hold a step that another map index of the task recorded, with what its seal was made over."""

    record: StepRecord
    execution_pk: int
    generation: int


@dataclass(frozen=True, slots=True)
class EventRecord:
    """
    Hold an event of an attempt. The sequence number is given at the commit.

    :param data: an encoded payload.
    :param replaces: numbers of this attempt's events that go with the commit; pieces of dead attempts go with them.
    """

    kind: str
    data: bytes
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Instead:
    """
    Be an event, not yet encoded, in the place of others of its attempt.

    :param replaces: numbers of those.
    """

    kind: str
    data: dict[str, Any]
    replaces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Hold what one commit writes: steps and events, in order.

    :param steps: results that count whoever brings them; an address that exists already keeps its first result.
    :param events: written only while the lease's fence is the current one.
    :param first_seq: the sequence number of the first event; the rest follow without a hole.
    """

    steps: tuple[StepRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    first_seq: int = field(default=1)
