"""
Keep large task results out of Airflow's database, without anyone who reads them noticing.

Above ``inline_limit`` a durable task pushes a small reference. Its ``deserialize`` gives back the value itself, so that
a plain ``@task``, a template and ``.expand()`` read what they always read. What is stored is the form that Airflow's
own serializer makes, so a value means the same on both sides of the limit.

The classes' names stand in rows of Airflow's database: they must not move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from airflow_aiflow.durable.ports import ArtifactStore


class StoredValue:
    """
    Stand for a large value that is in the artifact store.

    :param value: the value itself, for whoever looks at it in the process that made it.
    :param sha256: its address, in hex.
    :param size: its encoded size in bytes.
    """

    #: Read by Airflow's serializer and handed back to ``deserialize``.
    __version__: ClassVar[int] = 1

    def __init__(self, value: Any, sha256: str, size: int) -> None:
        self._value = value
        self.sha256 = sha256
        self.size = size

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sha256={self.sha256[:12]}..., size={self.size})"

    def serialize(self) -> dict[str, Any]:
        """Give what stands in XCom."""
        return {"sha256": self.sha256, "size": self.size}

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> Any:
        """
        Give the value itself.

        :param data: what ``serialize`` gave.
        :param version: of the class that wrote it.
        :raises TypeError: if a newer release wrote it.
        """
        from airflow.sdk.serde import deserialize

        from airflow_aiflow.durable.payload import decode
        from airflow_aiflow.hooks.aiflow import AiflowHook

        if version > StoredValue.__version__:
            raise TypeError(
                f"a stored XCom value of version {version} was written by a newer airflow-aiflow; this one reads "
                f"version {StoredValue.__version__}: upgrade it here"
            )
        hook = AiflowHook()
        stored = hook.artifact_store().get_value(bytes.fromhex(data["sha256"]))
        plain = decode(hook.cipher().open(stored, "a large XCom value"))
        return deserialize(plain)


class StoredList(StoredValue, Sequence[Any]):
    """Stand for a large list; a sequence, so that ``.expand()`` can count it when it is pushed."""

    def __len__(self) -> int:
        return len(self._value)

    def __getitem__(self, index: Any) -> Any:
        return self._value[index]


class StoredDict(StoredValue, Mapping[str, Any]):
    """Stand for a large dict."""

    def __len__(self) -> int:
        return len(self._value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __getitem__(self, key: str) -> Any:
        return self._value[key]


# Airflow lets a task be mapped over what is pushed only where that is a Sequence or a ``dict``. A ``dict`` this can't
# be, for Airflow would then push its items; whoever reads gets a real one.
Sequence.register(StoredDict)

_NAMES = frozenset(f"{each.__module__}.{each.__qualname__}" for each in (StoredValue, StoredList, StoredDict))


def reference_in(plain: Any) -> bytes | None:
    """
    Find a stored value's address in what stands in XCom, without reading the value.

    :param plain: as Airflow gives it, before it is deserialised.
    :return: ``None``: it is none of ours, or of a newer release.
    """
    if not isinstance(plain, dict) or plain.get("__classname__") not in _NAMES:
        return None
    data, version = plain.get("__data__"), plain.get("__version__")
    if not isinstance(data, dict) or not isinstance(version, int) or version > StoredValue.__version__:
        return None
    try:
        return bytes.fromhex(data["sha256"])
    except (KeyError, TypeError, ValueError):
        return None


def stored_if_large(
    value: Any,
    *,
    limit: int,
    store: Callable[[], ArtifactStore],
    find_secret: Callable[[Any], str | None],
    lock: Callable[[bytes], bytes] = bytes,
) -> tuple[Any, StoredValue | None]:
    """
    Replace a large value by its reference.

    :param value: what a task returns.
    :param limit: bytes of the encoded form up to which a value stays as it is.
    :param store: gives the artifact store; called for a large value alone.
    :param find_secret: gives the path of a secret in a plain value, ``None`` where there is none.
    :param lock: encrypts what is stored.
    :return: what to push, and the reference where one was made.
    """
    if value is None or isinstance(value, bool | int | float):
        return value, None
    from airflow.sdk.serde import serialize

    from airflow_aiflow.durable.payload import encode
    from airflow_aiflow.exceptions import PayloadEncodeError

    try:
        plain = serialize(value)
        data = encode(plain).data
    except (TypeError, AttributeError, RecursionError, PayloadEncodeError):
        # Airflow refuses it by its own words when it is pushed.
        return value, None
    if len(data) <= limit or find_secret(plain) is not None:
        return value, None
    sha256 = store().put_value(lock(data)).hex()
    reference = _class_for(value)(value, sha256, len(data))
    return reference, reference


def _class_for(value: Any) -> type[StoredValue]:
    if isinstance(value, Mapping):
        return StoredDict
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return StoredList
    return StoredValue
