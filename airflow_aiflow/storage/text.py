"""
Bring text into a form that a ledger can hold.

PostgreSQL stores neither U+0000 nor lone surrogates in text. What is only shown to people is made storable, so that a
paid result is never lost over the name of its step; what decides identity is refused instead of changed.
"""

from __future__ import annotations

from airflow_aiflow.durable.identity import EffectId, ExecutionId, digest
from airflow_aiflow.exceptions import LedgerError


def shown(text: str) -> str:
    """
    Replace what can't be stored: U+0000 by its visible symbol, a lone surrogate by its escape.

    :param text: a name for people to read; the identity of its row lies elsewhere.
    """
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode("utf-8")


def exact(text: str, what: str) -> str:
    """
    Refuse what can't be stored as it is.

    :param text: a part of an identity.
    :param what: its name, for the message.
    :raises LedgerError: if it holds U+0000 or a lone surrogate.
    """
    if shown(text) != text:
        raise LedgerError(f"{what} {text!r} holds U+0000 or a lone surrogate, which no ledger can store: leave it out")
    return text


def execution_identity(execution: ExecutionId) -> bytes:
    """
    Hash an execution's four columns, so that ids of any length fit an index.

    :param execution: the execution.
    :return: 32 bytes.
    :raises LedgerError: if an id can't be stored as it is.
    """
    for what, text in (("dag_id", execution.dag_id), ("run_id", execution.run_id), ("task_id", execution.task_id)):
        exact(text, what)
    return digest("execution", execution.dag_id, execution.run_id, execution.task_id, execution.map_index)


def effect_identity(effect: EffectId) -> bytes:
    """
    Hash an effect's three columns, so that a percent-encoded namespace of any length fits an index.

    :param effect: the effect.
    :return: 32 bytes.
    :raises LedgerError: if a column can't be stored as it is.
    """
    for what, text in (("namespace", effect.namespace), ("effect name", effect.name), ("key", effect.key)):
        exact(text, what)
    return digest("effect identity", effect.namespace, effect.name, effect.key)
