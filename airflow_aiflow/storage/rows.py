"""
Turn rows into the domain's values and back: the one place that knows the order of columns.

The order here is the order of the column lists in ``sql/``; a contract test writes and reads every field.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.attempt import Counters, Owner
from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.execution import ExecutionState, Lease, Standing
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.record import StepRecord, Stored, Usage
from airflow_aiflow.storage.text import shown

Row = tuple[Any, ...]

#: Number of columns of a step, as written by ``step_row`` and read by ``step_record``.
STEP_WIDTH = 17


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
    )


def step_record(row: Row) -> StepRecord:
    """
    Turn the columns of a step into the domain's value.

    :param row: as ``step_row`` gives them; more columns may follow.
    """
    tokens_in = row[14]
    return StepRecord(
        step_key=row[0],
        kind=row[1],
        name=row[2],
        unit=row[3],
        fingerprint=row[4],
        occurrence=row[5],
        fence=row[6],
        result=Stored(row[7], row[8]),
        seal=row[9],
        ended_at=utc(row[10]),
        duration_ms=row[11],
        usage=None if tokens_in is None else Usage(row[12], row[13], tokens_in, row[15], row[16]),
    )


def stored(inline: bytes | None, sha256: bytes | None) -> Stored | None:
    """Turn the two columns of a payload into a value; both null: there is none."""
    return None if inline is None and sha256 is None else Stored(inline, sha256)


def effect_record(row: Row) -> EffectRecord:
    """
    Turn a row of the view ``effect_now`` into the domain's value.

    :param row: the view's columns in its order.
    """
    return EffectRecord(
        effect_pk=row[0],
        effect=EffectId(row[1], row[2], row[3]),
        state=EffectState(row[4]),
        repeat=row[5],
        intent_no=row[6],
        intent_id=row[7],
        request=Stored(row[8], row[9]),
        request_fp=row[10],
        result=stored(row[11], row[12]),
        seal=row[13],
        execution=ExecutionId(row[14], row[15], row[16], row[17]),
        lease=Lease(row[18], row[19]),
        generation=row[20],
        attempt_number=row[21],
        owner=Owner.from_plain(row[22]),
        intended_at=utc(row[23]),
        settled_at=None if row[24] is None else utc(row[24]),
        live=row[25],
        gone_in=row[26],
        duplicate_suspected=row[27],
    )


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

    :param row: execution_id, fence, generation, state, the six counters, owner, lease_left.
    """
    return Standing(
        execution_pk=row[0],
        fence=row[1],
        generation=row[2],
        state=ExecutionState(row[3]),
        counters=counters(row[4:10]),
        owner=Owner.from_plain(row[10]),
        lease_left=row[11],
    )
