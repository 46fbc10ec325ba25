"""
The effect's statements on the memory ledger's tables, each called under its lock.

They say in Python what ``sql/`` says for PostgreSQL; every move is conditional on (state, intent number).
"""

from __future__ import annotations

from uuid import UUID

from airflow_aiflow.durable.effect import (
    OPEN_TO_INTENT,
    AlreadyThere,
    Decision,
    EffectRecord,
    EffectState,
    FenceMoved,
    Intended,
    IntentAnswer,
    IntentWrite,
    LeaseLapsed,
    Outcome,
    Refusals,
    Settled,
)
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import LedgerError
from airflow_aiflow.storage.memory_tables import (
    EffectRow,
    IntentRow,
    Tables,
    WordRow,
    check,
    check_effect,
    check_stored,
)
from airflow_aiflow.storage.text import effect_identity


def read(tables: Tables, row: EffectRow) -> EffectRecord:
    """Give an effect with the intent that decides what readers see."""
    intent = row.deciding
    execution = tables.by_pk[intent.lease.execution_pk]
    attempt = tables.attempts[intent.lease.execution_pk, intent.lease.fence]
    return EffectRecord(
        effect_pk=row.pk,
        effect=row.effect,
        state=row.state,
        repeat=row.repeat,
        intent_no=row.current.no,
        intent_id=intent.intent_id,
        request=intent.request,
        request_fp=intent.request_fp,
        result=intent.result if intent.given is None else intent.given,
        seal=intent.seal if intent.given is None else intent.given_seal,
        execution=execution.execution,
        lease=intent.lease,
        generation=intent.generation,
        attempt_number=attempt.number,
        owner=attempt.read_owner(),
        intended_at=tables.moment(intent.intended_at),
        settled_at=None if intent.settled_at is None else tables.moment(intent.settled_at),
        live=tables.live(intent.lease),
        gone_in=tables.gone_in(intent),
        duplicate_suspected=row.duplicate_suspected,
        number=intent.number,
        decision=intent.decision,
        decided_by=intent.decided_by,
        age=tables.clock.monotonic() - next(each for each in row.intents if each.repeat == row.repeat).intended_at,
        done_for=_done_for(tables, row),
        absent=intent.left_until is not None,
    )


def _done_for(tables: Tables, row: EffectRow) -> float | None:
    if row.succeeded_no is None:
        return None
    intent = row.deciding
    decided = intent.decided_at if intent.decision == "happened" else None
    return tables.clock.monotonic() - min(moment for moment in (intent.settled_at, decided) if moment is not None)


def intend(tables: Tables, lease: Lease, write: IntentWrite) -> IntentAnswer:
    """Write an intent, or tell why not."""
    effect_identity(write.effect)
    check_effect(write.effect)
    check("length(request_fp) = 32", len(write.request_fp) == 32)
    check("generation >= 1", write.generation >= 1)
    check_stored(write.request)
    if not tables.live(lease):
        return FenceMoved() if tables.held(lease) is None else LeaseLapsed()
    row = tables.effects.get(write.effect)
    if row is None:
        row = EffectRow(len(tables.effects) + 1, write.effect, EffectState.INTENDED, lease.execution_pk)
        tables.effects[write.effect] = row
    elif row.state in OPEN_TO_INTENT and row.current.no == write.seen:
        row.repeat += row.state is not EffectState.FAILED
        row.state, row.execution_pk, row.succeeded_no = EffectState.INTENDED, lease.execution_pk, None
    else:
        return _own_or_there(tables, row, write.intent_id)
    intent = IntentRow(
        intent_id=write.intent_id,
        no=len(row.intents) + 1,
        repeat=row.repeat,
        lease=lease,
        generation=write.generation,
        request=write.request,
        request_fp=write.request_fp,
        timeout=write.timeout,
        intended_at=tables.clock.monotonic(),
        number=next(tables.numbers),
    )
    row.intents.append(intent)
    tables.intents[write.intent_id] = tables.numbered[intent.number] = (row, intent)
    return Intended(intent.intent_id, intent.no, intent.repeat)


def _own_or_there(tables: Tables, row: EffectRow, intent_id: UUID) -> IntentAnswer:
    current = row.current
    if current.intent_id == intent_id and row.state is EffectState.INTENDED and current.outcome is None:
        return Intended(intent_id, current.no, current.repeat)
    return AlreadyThere(read(tables, row))


def settle(tables: Tables, intent_id: UUID, outcome: Outcome, result: Stored | None, seal: bytes | None) -> Settled:
    """Record an outcome and let the effect follow it."""
    check("a result comes with a success alone", result is None or outcome == "succeeded")
    check_stored(result)
    if intent_id not in tables.intents:
        raise LedgerError(f"there is no intent {intent_id}: its outcome can't be recorded in this ledger")
    row, intent = tables.intents[intent_id]
    if intent.outcome is None:
        intent.outcome, intent.result, intent.seal = outcome, result, seal
        intent.settled_at = tables.clock.monotonic()
        if outcome == "succeeded":
            _succeed(row, intent)
        elif intent is row.current and row.state in (EffectState.INTENDED, EffectState.IN_DOUBT):
            row.state = EffectState.FAILED
    return Settled(row.state, row.duplicate_suspected)


def _succeed(row: EffectRow, intent: IntentRow) -> None:
    confirms = intent.decision == "happened"
    if intent.repeat != row.repeat:
        # An earlier wished repeat: it was done by another intent, unless this very one was held to have happened.
        row.duplicate_suspected |= not confirms
    elif row.state in (EffectState.INTENDED, EffectState.IN_DOUBT, EffectState.FAILED):
        # A newer open intent may be applied as well; a failed one surely was not.
        row.duplicate_suspected |= intent is not row.current and row.state is not EffectState.FAILED
        row.state, row.succeeded_no = EffectState.SUCCEEDED, intent.no
    else:
        row.duplicate_suspected |= not confirms


def doubt(tables: Tables, lease: Lease, intent_id: UUID) -> bool:
    """Move ``intended`` to ``in_doubt``."""
    found = tables.intents.get(intent_id)
    if found is None or not tables.live(lease):
        return False
    row, intent = found
    if intent is not row.current:
        return False
    if row.state is EffectState.INTENDED and (intent.lease == lease or not tables.live(intent.lease)):
        row.state = EffectState.IN_DOUBT
    return row.state is EffectState.IN_DOUBT


def leave(tables: Tables, lease: Lease, intent_id: UUID, seconds: float | None) -> bool:
    """Note that an open call is left on purpose, or in this attempt's hands again."""
    found = tables.intents.get(intent_id)
    if found is None or not tables.live(lease):
        return False
    intent = found[1]
    if intent.lease.execution_pk != lease.execution_pk or intent.outcome is not None or intent.decision is not None:
        return False
    intent.left_until = None if seconds is None else tables.clock.monotonic() + seconds
    intent.lease = lease
    return True


def refused(tables: Tables, lease: Lease, effect: EffectId) -> Refusals:
    """Count the calls that the processes of this try made in vain before this one."""
    row = tables.effects.get(effect)
    number = tables.attempts[lease.execution_pk, lease.fence].number
    vain = [
        each.intended_at
        for each in ([] if row is None else row.intents)
        if row is not None
        and each.repeat == row.repeat
        and each.lease.execution_pk == lease.execution_pk
        and each.lease.fence < lease.fence
        and tables.attempts[each.lease.execution_pk, each.lease.fence].number == number
        and (each.outcome == "not_applied" or each.decision == "retry")
    ]
    return Refusals(len(vain), tables.moment(min(vain)) if vain else None)


def decide(
    tables: Tables,
    lease: Lease,
    intent_id: UUID,
    decision: Decision,
    by: str,
    *,
    given: tuple[Stored, bytes | None] | None = None,
) -> bool:
    """Apply a decision to the effect in doubt whose current intent this is."""
    found = tables.intents.get(intent_id)
    if found is None or not tables.live(lease):
        return False
    row, intent = found
    if intent.decision is not None:
        return (intent.decision, intent.decided_by) == (decision, by)
    if intent is not row.current or row.state is not EffectState.IN_DOUBT or intent.outcome is not None:
        return False
    apply_decision(tables, row, decision, by, given=given)
    return True


def apply_decision(
    tables: Tables, row: EffectRow, decision: Decision, by: str, *, given: tuple[Stored, bytes | None] | None
) -> None:
    """Decide an effect's current intent; all conditions hold."""
    intent = row.current
    intent.decision, intent.decided_by, intent.decided_at = decision, by, tables.clock.monotonic()
    if given is not None:
        check_stored(given[0])
        intent.given, intent.given_seal = given
    if decision == "happened":
        row.state, row.succeeded_no = EffectState.SUCCEEDED, intent.no
    else:
        row.state = EffectState.FAILED


def compensated(tables: Tables, lease: Lease, intent_id: UUID) -> bool:
    """Move ``succeeded`` to ``compensated``."""
    found = tables.intents.get(intent_id)
    if found is None or not tables.live(lease):
        return False
    row, intent = found
    if row.succeeded_no != intent.no:
        return False
    if row.state is EffectState.SUCCEEDED:
        row.state = EffectState.COMPENSATED
    return row.state is EffectState.COMPENSATED


def release(tables: Tables, lease: Lease, intent_id: UUID, by: str, note: str) -> bool:
    """Move ``succeeded`` to ``released`` for an attempt."""
    found = tables.intents.get(intent_id)
    if found is None or not tables.live(lease):
        return False
    row, intent = found
    return let_repeat(tables, row, intent, by, note) or (
        row.state is EffectState.RELEASED and row.succeeded_no == intent.no
    )


def let_repeat(tables: Tables, row: EffectRow, intent: IntentRow, by: str, note: str) -> bool:
    """Release an effect that this intent did; ``False``: it did not, or is released already."""
    if row.succeeded_no != intent.no or row.state is not EffectState.SUCCEEDED:
        return False
    row.state = EffectState.RELEASED
    tables.words[intent.number, "released"] = WordRow(by, tables.clock.monotonic(), note)
    return True
