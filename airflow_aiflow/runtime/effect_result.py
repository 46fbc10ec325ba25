"""Store what an effect gave: it happened, and that must be recorded whatever its result is."""

from __future__ import annotations

from typing import Any

from airflow_aiflow.durable.record import Stored
from airflow_aiflow.runtime.session import Session


def store_result(session: Session, name: str, value: Any, as_type: Any) -> tuple[Stored, bool]:
    """
    Store a result; what can't be stored is kept as its text, and what holds a secret not at all.

    :param session: the attempt at work.
    :param name: the effect's name.
    :param value: any object of the author's.
    :param as_type: the class that rebuilds it.
    :return: what is recorded, and whether a secret was left out.
    """
    payloads, log = session.payloads, session.services.host.log
    try:
        secret = payloads.secret_in_clear(value)
        if secret is None:
            return payloads.save(value, name, as_type, whatever_size=True), False
    except Exception as error:  # the value may be any object of the author's
        log(f"the result of effect '{name}' can't be stored ({error}): its text is kept instead", warning=True)
        return payloads.save(payloads.as_text(value), name, str, whatever_size=True), False
    log(
        f"the result of effect '{name}' holds a secret at {secret}: the effect is recorded as done, its result is not",
        warning=True,
    )
    return payloads.save(None, name), True
