"""Create one record at an HTTP service that keeps idempotency keys: the same key twice gives the same record again."""

from __future__ import annotations

from typing import Any

from airflow_aiflow.exceptions import EffectNotAppliedError
from airflow_aiflow.runtime.requests import EffectContext

#: A connection of type ``http``; its password is the Bearer token.
CONNECTION = "records"


def create_record(ctx: EffectContext, fields: dict[str, Any]) -> str:
    """
    Create a record.

    :param ctx: its idempotency key goes to the service, so that a repeat after a lost answer is harmless.
    :param fields: what the record holds.
    :return: the record's id.
    :raises EffectNotAppliedError: if the connection is not there.
    """
    import httpx
    from airflow.sdk import Connection

    try:
        connection = Connection.get(CONNECTION)
    except Exception as error:
        raise EffectNotAppliedError(f"the connection '{CONNECTION}' can't be read: {error}") from error
    base = connection.host or ""
    if "://" not in base:
        base = f"{connection.schema or 'http'}://{base}"
    if connection.port:
        base = f"{base}:{connection.port}"
    headers = {"Idempotency-Key": ctx.idempotency_key, "Authorization": f"Bearer {connection.password}"}
    answer = httpx.post(f"{base}/records", json=fields, headers=headers, timeout=ctx.deadline)
    answer.raise_for_status()
    return str(answer.json()["id"])
