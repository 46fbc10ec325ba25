"""One step as JSON: its result, masked and cut; its seal; what changed; where a reused one comes from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_aiflow.api.argument_views import argument_models
from airflow_aiflow.api.execution_models import (
    ArtifactModel,
    DiffCounts,
    DiffItem,
    DiffModel,
    DiffSide,
    Provenance,
    ResultModel,
    StepModel,
)
from airflow_aiflow.api.execution_views import step_state
from airflow_aiflow.api.plain_value import references, shortened
from airflow_aiflow.durable.artifact import PAYLOAD_MEDIA_TYPE, ArtifactRef
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.durable.record import StepRecord, Stored
from airflow_aiflow.durable.seal import verify
from airflow_aiflow.durable.step_arguments import names_of
from airflow_aiflow.durable.step_diff import Compared, Difference, changes, counts, nearest
from airflow_aiflow.durable.timeline import StepSheet
from airflow_aiflow.exceptions import PayloadError, SealError
from airflow_aiflow.llm.call import PART_NAMES
from airflow_aiflow.runtime.payloads import result_hash
from airflow_aiflow.runtime.readable import redacted
from airflow_aiflow.runtime.step_seal import sealed_at
from airflow_aiflow.storage.payload_cipher import PayloadCipher

#: Characters of a result that is compared line by line.
MOST_COMPARED = 8_000

#: Steps of a comparison that are listed.
MOST_LISTED = 2_000


def step_model(
    sheet: StepSheet,
    told: Sequence[bytes],
    *,
    execution: ExecutionId,
    last_fence: int,
    cipher: PayloadCipher,
    seal_key: bytes | None,
    results: bool,
) -> StepModel:
    """
    Show a step.

    :param sheet: as read.
    :param told: events that were committed with it.
    :param execution: whose step it is.
    :param last_fence: of the execution's last attempt.
    :param cipher: opens what is encrypted.
    :param seal_key: of the deployment.
    :param results: whether the user may see what tasks gave.
    """
    record, usage = sheet.record, sheet.record.usage
    return StepModel(
        key=record.step_key.hex(),
        kind=record.kind,
        name=record.name,
        path=record.unit or None,
        state=step_state(sheet.row, last_fence),
        generation=sheet.generation,
        attempt=sheet.attempt.attempt,
        attempt_try=sheet.attempt.try_number,
        started_at=sheet.row.began_at,
        ended_at=sheet.row.ended_at,
        duration_ms=record.duration_ms,
        model=None if usage is None else usage.model,
        provider=_provider(None if usage is None else usage.model),
        tokens_in=None if usage is None else usage.tokens_in,
        tokens_out=None if usage is None else usage.tokens_out,
        cost=None if usage is None else usage.cost,
        fingerprint=record.fingerprint.hex(),
        changed=_changed(sheet),
        provenance=_provenance(record, told, cipher),
        arguments=argument_models(
            record, cipher, lambda sha256: _href(sha256, execution, record.step_key, sheet.generation)
        )
        if results
        else None,
        result=result_model(record, execution, cipher) if results else None,
        sealed=_sealed(sheet, seal_key),
    )


def _provider(model: str | None) -> str | None:
    return model.partition(":")[0] if model and ":" in model else None


def _compared(record: StepRecord, names: tuple[str, ...] | None = None) -> Compared:
    usage = record.usage
    return Compared(
        key=record.step_key,
        kind=record.kind,
        name=record.name,
        unit=record.unit,
        result_hash=result_hash(record.result),
        prints=record.prints,
        duration_ms=record.duration_ms,
        model=None if usage is None else usage.model,
        tokens_in=None if usage is None else usage.tokens_in,
        tokens_out=None if usage is None else usage.tokens_out,
        cost=None if usage is None else usage.cost,
        names=names or names_of(record.arguments),
    )


def _changed(sheet: StepSheet) -> list[str] | None:
    mine, before = _compared(sheet.record, sheet.names), [_compared(each) for each in sheet.before]
    former = next((each for each in before if each.key == mine.key), None) or nearest(mine, before)
    return None if former is None else list(changes(former, mine, PART_NAMES))


def _provenance(record: StepRecord, told: Sequence[bytes], cipher: PayloadCipher) -> Provenance | None:
    for data in told:
        try:
            plain = decode(cipher.open(data, "an event"))
        except PayloadError:
            continue
        if isinstance(plain, dict) and plain.get("name") == record.name and isinstance(plain.get("reused_from"), str):
            return Provenance(run_id=plain["reused_from"], ran_at=plain.get("ran_at"), cost=plain.get("cost"))
    return None


def _sealed(sheet: StepSheet, key: bytes | None) -> bool:
    record = sheet.record
    try:
        verify(
            record.seal,
            key=key,
            execution=str(sheet.execution_pk),
            generation=sheet.generation,
            step_key=record.step_key,
            request_fingerprint=record.fingerprint,
            result_hash=result_hash(record.result),
            recorded_at=sealed_at(record.ended_at),
        )
    except SealError:
        return False
    return True


def result_model(record: StepRecord, execution: ExecutionId, cipher: PayloadCipher) -> ResultModel:
    """
    Show what a step gave.

    :param record: the step.
    :param execution: whose it is.
    :param cipher: opens what is encrypted.
    """
    if record.result.inline is None:
        assert record.result.sha256 is not None
        address = record.result.sha256.hex()
        media_type = PAYLOAD_MEDIA_TYPE
        return ResultModel(
            artifact=ArtifactModel(
                sha256=address, size=None, media_type=media_type, href=_href(address, execution, None)
            )
        )
    try:
        value = decode(cipher.open(record.result.inline, "it"))
    except PayloadError as error:
        return ResultModel(unreadable=str(error))
    if isinstance(value, ArtifactRef):
        return ResultModel(
            artifact=ArtifactModel(
                sha256=value.sha256,
                size=value.size,
                media_type=value.media_type,
                name=value.name,
                href=_href(value.sha256, execution, record.step_key),
            )
        )
    found = next(references(value), None)
    shown, cut = shortened(redacted(value))
    artifact = None
    if found is not None:
        artifact = ArtifactModel(
            sha256=found.sha256,
            size=found.size,
            media_type=found.media_type,
            name=found.name,
            href=_href(found.sha256, execution, record.step_key),
        )
    return ResultModel(value=shown, cut=cut, artifact=artifact)


def _href(sha256: str, execution: ExecutionId, key: bytes | None, generation: int | None = None) -> str:
    from urllib.parse import urlencode

    query: dict[str, str | int] = {
        "dag_id": execution.dag_id,
        "run_id": execution.run_id,
        "task_id": execution.task_id,
        "map_index": execution.map_index,
    }
    if key is not None:
        query["key"] = key.hex()
    if generation is not None:
        query["generation"] = generation
    return f"/artifacts/{sha256}?{urlencode(query)}"


def diff_model(
    found: Sequence[Difference], before: Mapping[bytes, Stored], after: Mapping[bytes, Stored], cipher: PayloadCipher
) -> DiffModel:
    """
    Show a comparison.

    :param found: in its order.
    :param before: results of the former side that are compared, by step key.
    :param after: results of the later side.
    :param cipher: opens what is encrypted.
    """
    sums = counts(found)
    listed = found if len(found) <= MOST_LISTED else [each for each in found if each.verdict != "same"][:MOST_LISTED]
    return DiffModel(
        items=[_diff_item(each, before, after, cipher) for each in listed],
        counts=DiffCounts(**sums),
        truncated=len(listed) < len(found),
    )


def _diff_item(
    one: Difference, before: Mapping[bytes, Stored], after: Mapping[bytes, Stored], cipher: PayloadCipher
) -> DiffItem:
    left, right = _side(one.before), _side(one.after)
    lines = None
    if left is not None and right is not None and one.before is not None and one.after is not None:
        texts = [_small(before.get(one.before.key), cipher), _small(after.get(one.after.key), cipher)]
        if texts[0] is not None and texts[1] is not None:
            left.result, right.result = texts[0][0], texts[1][0]
            lines = list(difflib.unified_diff(texts[0][1], texts[1][1], "before", "after", lineterm=""))
    return DiffItem(
        name=one.one.name,
        kind=one.one.kind,
        verdict=one.verdict,
        changed=list(one.changed),
        before=left,
        after=right,
        lines=lines,
    )


def _side(one: Compared | None) -> DiffSide | None:
    if one is None:
        return None
    return DiffSide(
        key=one.key.hex(),
        duration_ms=one.duration_ms,
        model=one.model,
        tokens_in=one.tokens_in,
        tokens_out=one.tokens_out,
        cost=one.cost,
    )


def _small(stored: Stored | None, cipher: PayloadCipher) -> tuple[Any, list[str]] | None:
    import json

    if stored is None or stored.inline is None or len(stored.inline) > MOST_COMPARED:
        return None
    try:
        value, _ = shortened(redacted(decode(cipher.open(stored.inline, "it"))))
    except PayloadError:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return value, text.splitlines()
