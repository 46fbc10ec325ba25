"""
Seal the result of an effect to its intent, so that one which was edited or copied by hand is refused by name.

A result that a person gave has no seal where the person had no key. It is accepted where the decision on that very call
says that it happened, and by whom; without such a decision a result without a seal is refused.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.seal import seal, verify
from airflow_aiflow.exceptions import SealError
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
    if found.result is None:
        return
    if found.seal is None:
        if found.decision == "happened":
            return
        raise SealError(
            f"the result of effect '{found.effect.name}' (#{found.number}) has no seal, and nobody decided that it "
            f"happened: the row was edited by hand. Restore it, or release the effect: aiflow effects release "
            f"{found.number}"
        )
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
