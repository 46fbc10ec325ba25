"""
Seal the result of an effect to its intent, so that one which was edited or copied by hand is refused by name.

Not covered: a result without a seal is taken as a person's answer to a doubt, which carries none yet.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.seal import seal, verify
from airflow_aiflow.runtime.payloads import result_hash


def seal_effect(
    key: bytes | None, lease: Lease, generation: int, intent_id: UUID, request_fp: bytes, result: Stored
) -> bytes:
    """
    Seal a result.

    :param key: the deployment's seal key.
    :param lease: of the attempt that wrote the intent.
    :param generation: of its execution.
    :param intent_id: the intent.
    :param request_fp: fingerprint of its request.
    :param result: what is recorded.
    """
    return seal(**_parts(key, lease, generation, intent_id, request_fp, result))


def check_effect(key: bytes | None, found: EffectRecord) -> None:
    """
    Verify the seal of a done effect's result.

    :raises SealError: naming the effect.
    """
    if found.result is None or found.seal is None:
        return
    parts = _parts(key, found.lease, found.generation, found.intent_id, found.request_fp, found.result)
    verify(found.seal, step=found.effect.name, **parts)


def _parts(
    key: bytes | None, lease: Lease, generation: int, intent_id: UUID, request_fp: bytes, result: Stored
) -> dict[str, Any]:
    return {
        "key": key,
        "execution": str(lease.execution_pk),
        "generation": generation,
        "step_key": intent_id.bytes,
        "request_fingerprint": request_fp,
        "result_hash": result_hash(result),
    }
