"""
Turn rows into the domain's values and back: the one place that knows the order of columns.

The order of a step here is the order of the column lists in ``sql/``; a contract test writes and reads every field.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.attempt import Counters, Owner
from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.execution import ExecutionState, Lease, Standing
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.inbox import Answer, IntentRecord, Question
from airflow_aiflow.durable.ports import Totals
from airflow_aiflow.durable.record import Kept, SharedStep, StepRecord, Stored, Usage
from airflow_aiflow.storage.text import shown

Row = tuple[Any, ...]

#: Number of columns of a step, as read by ``step_record``; ``step_row`` writes its arguments after them.
STEP_WIDTH = 18


def utc(moment: datetime) -> datetime:
    """Give a moment in UTC: a session's time zone decides nothing but the look of what a driver returns."""
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


def step_row(step: StepRecord) -> Row:
    """Turn a step into its columns."""
    usage = step.usage
    return (
        step.step_key,
        step.kind,
        shown(step.name),
        shown(step.unit),
        step.fingerprint,
        step.occurrence,
        step.fence,
        step.result.inline,
        step.result.sha256,
        step.seal,
        step.ended_at,
        step.duration_ms,
        *(
            (None, None, None, None, None)
            if usage is None
            else (
                None if usage.model is None else shown(usage.model),
                None if usage.response_id is None else shown(usage.response_id),
                usage.tokens_in,
                usage.tokens_out,
                usage.cost,
            )
        ),
        step.prints,
        step.arguments,
    )


# A frozen dataclass's own constructor takes twice as long as the setters of its slots, and a resume makes ten thousand.
_put_key, _put_kind, _put_name, _put_unit, _put_fingerprint, _put_occurrence, _put_fence = (
    getattr(StepRecord, name).__set__
    for name in ("step_key", "kind", "name", "unit", "fingerprint", "occurrence", "fence")
)
_put_reuse_key = StepRecord.reuse_key.__set__  # type: ignore[union-attr,misc]
_put_arguments = StepRecord.arguments.__set__  # type: ignore[union-attr,misc]
_put_result, _put_seal, _put_ended_at, _put_duration, _put_usage, _put_prints = (
    getattr(StepRecord, name).__set__ for name in ("result", "seal", "ended_at", "duration_ms", "usage", "prints")
)
_put_inline, _put_sha256 = (getattr(Stored, name).__set__ for name in ("inline", "sha256"))


def step_record(row: Row) -> StepRecord:
    """
    Turn the columns of a step into the domain's value.

    :param row: as ``step_row`` gives them; more columns may follow. That it has one payload the table has checked. The
        arguments are not read: no replay needs them.
    """
    (key, kind, name, unit, fingerprint, occurrence, fence, inline, sha256, seal, ended_at, duration) = row[:12]
    result = Stored.__new__(Stored)
    _put_inline(result, inline)
    _put_sha256(result, sha256)
    step = StepRecord.__new__(StepRecord)
    _put_key(step, key)
    _put_kind(step, kind)
    _put_name(step, name)
    _put_unit(step, unit)
    _put_fingerprint(step, fingerprint)
    _put_occurrence(step, occurrence)
    _put_fence(step, fence)
    _put_result(step, result)
    _put_seal(step, seal)
    _put_ended_at(step, utc(ended_at))
    _put_duration(step, duration)
    _put_usage(step, None if row[14] is None else Usage(*row[12:17]))
    _put_prints(step, row[17])
    _put_reuse_key(step, None)
    _put_arguments(step, None)
    return step


def whole_step(row: Row) -> StepRecord:
    """
    Turn the columns of a step and its arguments into the domain's value.

    :param row: as ``step_row`` gives them.
    """
    step = step_record(row)
    _put_arguments(step, row[STEP_WIDTH])
    return step


def kept(row: Row) -> Kept:
    """
    Turn a row of the statement ``kept`` into the domain's value.

    :param row: its columns are the value's, in order.
    """
    return Kept._make(row)


def totals(row: dict[str, Any]) -> Totals:
    """
    Turn the sums of the statement ``recorded_rest`` into the domain's value.

    :param row: a JSON object; the cost in it is text.
    """
    return Totals(
        row["steps"], row["calls"], row["tokens_in"], row["tokens_out"], Decimal(row["cost"]), row["unpriced"]
    )


def shared_step(row: Row) -> SharedStep:
    """
    Turn a row of the statement ``shared_steps`` into the domain's value.

    :param row: the columns of a step, execution_id, generation.
    """
    return SharedStep(step_record(row), execution_pk=row[STEP_WIDTH], generation=row[STEP_WIDTH + 1])


def effect_record(row: dict[str, Any]) -> EffectRecord:
    """
    Turn a row of the view ``effect_now`` into the domain's value.

    :param row: the row as a JSON object: moments in ISO 8601, bytes as ``\\x`` and hexadecimal digits.
    """
    return EffectRecord(
        effect_pk=row["effect_id"],
        effect=EffectId(row["namespace"], row["name"], row["key"]),
        state=EffectState(row["state"]),
        repeat=row["repeat"],
        intent_no=row["intent_no"],
        intent_id=UUID(row["intent_id"]),
        request=Stored(_bytes(row["request"]), _bytes(row["request_sha256"])),
        request_fp=bytes.fromhex(row["request_fp"][2:]),
        result=_stored(_bytes(row["result"]), _bytes(row["result_sha256"])),
        seal=_bytes(row["seal"]),
        execution=ExecutionId(row["dag_id"], row["run_id"], row["task_id"], row["map_index"]),
        lease=Lease(row["execution_id"], row["fence"]),
        generation=row["generation"],
        attempt_number=row["number"],
        owner=Owner.from_plain(row["owner"]),
        intended_at=_moment(row["intended_at"]),
        settled_at=None if row["settled_at"] is None else _moment(row["settled_at"]),
        live=row["live"],
        gone_in=float(row["gone_in"]),
        duplicate_suspected=row["duplicate_suspected"],
        number=row["intent_number"],
        decision=row["decision"],
        decided_by=row["decided_by"],
        age=float(row["age"]),
        done_for=None if row["done_for"] is None else float(row["done_for"]),
        absent=row["absent"],
    )


def intent_record(row: Row) -> IntentRecord:
    """
    Turn a row of the statement ``intents`` into the domain's value.

    :param row: its columns, in their order.
    """
    number, begun_at, settled_at, outcome, decision, by, at, note, released_by, released_at, release_note = row[:11]
    return IntentRecord(
        number=number,
        begun_at=utc(begun_at),
        settled_at=None if settled_at is None else utc(settled_at),
        outcome=outcome,
        decision=decision,
        decided_by=by,
        decided_at=None if at is None else utc(at),
        note=note,
        released_by=released_by,
        released_at=None if released_at is None else utc(released_at),
        release_note=release_note,
        execution=ExecutionId(*row[11:15]),
        attempt_number=row[15],
    )


def question(row: dict[str, Any]) -> Question:
    """
    Turn a row of the view ``question_now`` into the domain's value.

    :param row: the row as a JSON object.
    """
    answer = None
    if row["answer"] is not None:
        answer = Answer(row["answer"], by=row["answered_by"], at=_moment(row["answered_at"]), note=row["note"])
    return Question(
        number=row["number"],
        kind=row["kind"],
        name=row["name"],
        execution=ExecutionId(row["dag_id"], row["run_id"], row["task_id"], row["map_index"]),
        subject=row["subject"],
        body=row["body"],
        options=tuple(row["options"]),
        assigned_users=tuple(row["assigned_users"]),
        asked_at=_moment(row["asked_at"]),
        time_left=None if row["time_left"] is None else float(row["time_left"]),
        answer=answer,
        effect=None if row["key"] is None else EffectId(row["namespace"], row["effect_name"], row["key"]),
        intent_id=None if row["intent_id"] is None else UUID(row["intent_id"]),
    )


def _stored(inline: bytes | None, sha256: bytes | None) -> Stored | None:
    return None if inline is None and sha256 is None else Stored(inline, sha256)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text[2:])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def counters(row: Row) -> Counters:
    """
    Turn the columns (ti_id, try_number, max_tries, retries, clear_number, run_after) into counters.

    :param row: the six columns.
    """
    ti_id: UUID = row[0]
    run_after: datetime | None = row[5]
    return Counters(ti_id, row[1], row[2], row[3], row[4], None if run_after is None else utc(run_after))


def standing(row: Row) -> Standing:
    """
    Turn a row of the statement ``standing`` into the domain's value.

    :param row: execution_id, fence, generation, state, the six counters, owner, lease_left, heard, upstream_digest,
        requeued_at and up to where, wish.
    """
    return Standing(
        execution_pk=row[0],
        fence=row[1],
        generation=row[2],
        state=ExecutionState(row[3]),
        counters=counters(row[4:10]),
        owner=Owner.from_plain(row[10]),
        lease_left=row[11],
        heard=row[12],
        upstream_digest=row[13],
        requeued_at=None if row[14] is None else (row[14], row[15]),
        wish=row[16],
    )
