"""What the decorated operators share: arguments made plain, results that are too large for XCom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_aiflow.runtime.payloads import find_secret
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.xcom import stored_if_large

if TYPE_CHECKING:
    from airflow_aiflow.hooks.context import Work

KIB, MIB = 1024, 1024**2


def plain_argument(value: Any) -> Any:
    """
    Read a lazy sequence of mapped results whole: an argument must be a value to have a fingerprint.

    :param value: an argument of a task, as Airflow resolved it.
    """
    if isinstance(value, dict):
        return {key: plain_argument(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_argument(item) for item in value]
    from airflow.sdk.execution_time.lazy_sequence import LazyXComSequence

    return list(value) if isinstance(value, LazyXComSequence) else value


def for_xcom(value: Any, work: Work, *, multiple_outputs: bool) -> Any:
    """
    Replace what is too large for XCom by references, and say so in the task log.

    :param value: the task's result.
    :param work: the attempt that gave it.
    :param multiple_outputs: whether Airflow pushes each key by itself.
    """
    if multiple_outputs and isinstance(value, Mapping):
        return {key: _one(item, work, f"result {key!r}") for key, item in value.items()}
    return _one(value, work, "result")


def _one(value: Any, work: Work, name: str) -> Any:
    services, host = work.services, work.host

    def secret_path(plain: Any) -> str | None:
        path = find_secret(plain, host.is_secret)
        if path is not None:
            host.log(f"aiflow: the {name} holds a secret at {path}: it stays in XCom, unstored", warning=True)
        return path

    pushed, reference = stored_if_large(
        value,
        limit=services.settings.inline_limit,
        store=services.store,
        find_secret=secret_path,
        lock=PayloadCipher(services.settings.payload_keys).lock,
    )
    if reference is not None:
        kind = type(value).__name__
        count = f" of {len(value)}" if hasattr(value, "__len__") else ""
        host.log(f"aiflow: {name} {kind}{count} ({_size(reference.size)}) stored; XCom holds a reference")
    return pushed


def _size(size: int) -> str:
    return f"{size / MIB:.1f} MB" if size >= MIB else f"{size / KIB:.0f} KB"
