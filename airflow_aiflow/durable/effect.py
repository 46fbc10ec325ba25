"""
The effect and its intents: states, legal moves, and what the ledger answers.

An intent is a row of its own for ever, written before the outside call; the effect's row is the deciding view with the
number of its current intent. Every move is conditional on (state, intent number). Outcomes are always accepted, from
any fence, in every state: the world wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal
from uuid import UUID

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.record import Stored


class EffectState(StrEnum):
    """Name the states of an effect."""

    INTENDED = "intended"
    IN_DOUBT = "in_doubt"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # surely not applied
    RELEASED = "released"  # a person's word that it may be repeated
    COMPENSATED = "compensated"


#: Every legal move; the statements are conditional on the same, and random histories are held against it.
LEGAL_MOVES: dict[EffectState, frozenset[EffectState]] = {
    EffectState.INTENDED: frozenset({EffectState.SUCCEEDED, EffectState.FAILED, EffectState.IN_DOUBT}),
    EffectState.IN_DOUBT: frozenset({EffectState.SUCCEEDED, EffectState.FAILED}),
    # A late success overrides a person's no.
    EffectState.FAILED: frozenset({EffectState.INTENDED, EffectState.SUCCEEDED}),
    EffectState.SUCCEEDED: frozenset({EffectState.RELEASED, EffectState.COMPENSATED}),
    EffectState.RELEASED: frozenset({EffectState.INTENDED}),
    EffectState.COMPENSATED: frozenset({EffectState.INTENDED}),
}

#: States from which a new intent may be written.
OPEN_TO_INTENT = frozenset({EffectState.FAILED, EffectState.RELEASED, EffectState.COMPENSATED})

Outcome = Literal["succeeded", "not_applied"]
Decision = Literal["happened", "did_not_happen", "retry"]


@dataclass(frozen=True, slots=True)
class IntentWrite:
    """
    Hold what is written before the outside call.

    :param intent_id: made by the client, so that a lost acknowledgement is told from somebody else's intent.
    :param seen: the number of the current intent on which this one is based; 0 where no effect row was seen.
    :param request: the canonical request, encoded.
    :param request_fp: 32 bytes over the request.
    :param timeout: seconds that the call may take.
    :param generation: the execution's generation.
    """

    intent_id: UUID
    effect: EffectId
    seen: int
    request: Stored
    request_fp: bytes
    timeout: float
    generation: int


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """
    Hold an effect with its current intent, as read; all durations are the database's.

    Where an earlier intent's late success decided the effect, everything but ``intent_no`` is that intent's.
    """

    effect_pk: int
    effect: EffectId
    state: EffectState
    repeat: int
    intent_no: int
    intent_id: UUID
    request: Stored
    request_fp: bytes
    result: Stored | None
    #: Where and by which attempt the current intent was written.
    execution: ExecutionId
    lease: Lease
    generation: int
    attempt_number: int
    owner: Owner
    intended_at: datetime
    settled_at: datetime | None
    #: Whether the attempt that wrote the intent holds its lease now.
    live: bool
    #: Seconds until the intent's owner is presumed gone: lease lapsed, or its absence over, plus the intent's timeout.
    #: 0 or less: it is.
    gone_in: float
    duplicate_suspected: bool = False
    #: The seal that came with the result.
    seal: bytes | None = None
    #: The number of the intent in the inbox, in messages and commands.
    number: int = 0
    #: What was decided about the current intent, by whom; ``retry`` and ``did_not_happen``: to be called again.
    decision: Decision | None = None
    decided_by: str | None = None
    #: Seconds since the first intent of this ``repeat``: for so long the target may have known our key.
    age: float = 0.0
    #: Seconds since the success was recorded or decided; ``None``: there is none.
    done_for: float | None = None
    #: Whether its process left the open call on purpose (a deferral, a reschedule) and nobody has gone on with it.
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Refusals:
    """Tell how often the processes of a try called an effect in vain, and since when."""

    number: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Intended:
    """Say that the intent is committed and the call may be made."""

    intent_id: UUID
    intent_no: int
    repeat: int


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """Say that the effect's row does not allow this intent: look at it and decide."""

    found: EffectRecord


@dataclass(frozen=True, slots=True)
class LeaseLapsed:
    """Say that the lease is ours still, but lapsed: beat, then try again."""


@dataclass(frozen=True, slots=True)
class FenceMoved:
    """Say that a later attempt holds the fence: start nothing more."""


IntentAnswer = Intended | AlreadyThere | LeaseLapsed | FenceMoved


@dataclass(frozen=True, slots=True)
class Settled:
    """Tell what became of an outcome: the effect's state now, and whether a double is suspected."""

    state: EffectState
    duplicate_suspected: bool
