"""Turn values into what the ledger keeps, and back: small ones inline, large ones as artifacts, secrets never."""

from __future__ import annotations

import functools
import hashlib
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.payload import Encoded, decode, encode, return_type, unrestored
from airflow_aiflow.durable.ports import ArtifactStore, Host
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import ArtifactError, ArtifactUnavailableError, PayloadDecodeError
from airflow_aiflow.runtime.argument_record import ArgumentRecord
from airflow_aiflow.runtime.payload_types import register
from airflow_aiflow.storage.payload_cipher import MAGIC, PayloadCipher

# Whoever stores or reads a value goes through this module, so numpy, pydantic and pendulum are known from here on.
register()

#: Bytes up to which a result goes into the ledger's row while the artifact store is down: any model's answer is
#: smaller, and a row of this size still commits within a second.
RESCUE_LIMIT = 4 * 1024 * 1024

#: How deep a value is searched for secrets; the codec refuses what is deeper than that anyway.
SECRET_DEPTH = 60


_return_type = functools.lru_cache(maxsize=1024)(return_type)


def result_type(fn: Callable[..., Any]) -> Any:
    """
    Read the class by which a function's result is rebuilt; resolving annotations is slow, so it is kept.

    :param fn: the author's function; a ``partial`` counts as what it wraps.
    :return: the return annotation; ``None`` where there is none that can be resolved.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        return _return_type(fn)
    except TypeError:
        return return_type(fn)  # a callable object that has no hash


def argument_types(fn: Callable[..., Any]) -> Mapping[str, Any]:
    """
    Read the classes by which recorded arguments are rebuilt.

    :param fn: the author's function, no ``partial``.
    """
    try:
        return typing.get_type_hints(fn)
    except Exception:  # annotations are the author's: names that exist for the type checker alone, for example
        return {}


def find_secret(value: Any, is_secret: Callable[[str], bool]) -> str | None:
    """
    Look for a text that the host's masker knows.

    :param value: plain data; other objects are looked at through their attributes' dictionary.
    :param is_secret: the masker's word.
    :return: the path of the first one, ``None`` where there is none.
    """
    return _SecretSearch(is_secret).path_in(value, "", 0)


class _SecretSearch:
    def __init__(self, is_secret: Callable[[str], bool]) -> None:
        self._is_secret = is_secret
        #: Containers looked into, by identity: objects that know each other would else be walked on every path.
        self._seen: dict[int, Any] = {}

    def path_in(self, value: Any, path: str, depth: int) -> str | None:
        """Give the path of the first secret at or below a value."""
        if isinstance(value, str):
            return (path or "value") if self._is_secret(value) else None
        if value is None or isinstance(value, int | float | bytes) or depth > SECRET_DEPTH or id(value) in self._seen:
            return None
        self._seen[id(value)] = value
        for item, below in _parts(value, path):
            found = self.path_in(item, below, depth + 1)
            if found:
                return found
        return None


def _parts(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield key, f"{path}.{key}"
            yield item, f"{path}[{key!r}]"
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield item, f"{path}[{index}]"
    elif isinstance(fields := getattr(value, "__dict__", None), dict):
        yield fields, path


def masked(value: Any, redact: Callable[[str], str]) -> Any:
    """
    Mask the secrets in plain data.

    :param value: text, lists, tuples and dicts are looked into; anything else is left.
    :param redact: the masker.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {masked(key, redact): masked(item, redact) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, redact) for item in value]
    if isinstance(value, tuple):
        return tuple(masked(item, redact) for item in value)
    return value


class Payloads:
    """
    Store and load values.

    :param store: gives the artifact store at the first large value.
    :param inline_limit: bytes up to which a value stays in the ledger's row.
    :param host: knows secrets and writes warnings.
    :param cipher: encrypts what is stored; ``None``: it stays in clear.
    """

    def __init__(
        self, store: Callable[[], ArtifactStore], inline_limit: int, host: Host, cipher: PayloadCipher | None = None
    ) -> None:
        self._store = store
        self._inline_limit = inline_limit
        self._host = host
        self._cipher = cipher or PayloadCipher()
        #: Asked for each of a million items.
        self._in_clear = not self._cipher.active
        self.arguments = ArgumentRecord(host, self._cipher.lock)
        self._warned: set[str] = set()

    def save(self, value: Any, name: str, as_type: Any = None, *, whatever_size: bool = False) -> Stored:
        """
        Encode a value; a large one is in the artifact store before this returns.

        :param value: the value.
        :param name: the step's or effect's name, for messages.
        :param as_type: the class that rebuilds it; without one a class is stored as data, with one warning.
        :param whatever_size: see ``keep``.
        :raises PayloadEncodeError: if it can't be stored, with the path.
        """
        encoded = encode(value)
        if encoded.flattened and name not in self._warned:
            self._warn_of_lost_classes(encoded, name, as_type)
        return self.keep(encoded.data, name, whatever_size=whatever_size)

    def _warn_of_lost_classes(self, encoded: Encoded, name: str, as_type: Any) -> None:
        try:
            lost = unrestored(encoded, decode(encoded.data, as_type=as_type))
        except PayloadDecodeError:
            return  # it does not fit that class: who loads it hears of that, when it is recorded
        if not lost:
            return
        self._warned.add(name)
        where = f" at {lost[0].path}" if lost[0].path else ""
        self._host.log(
            f"'{name}' gives {lost[0].type_name}{where} as plain data: annotate the function's return type (or pass "
            f"output_type=) to get the class back",
            warning=True,
        )

    def keep(self, data: bytes, name: str, *, whatever_size: bool = False) -> Stored:
        """
        Put encoded bytes where their size says.

        :param data: the encoded bytes.
        :param name: the step's or effect's name, for failpoints.
        :param whatever_size: whether a row takes it without a store however large it is: what was done must be
            recorded.
        """
        data = self._cipher.lock(data)
        if len(data) <= self._inline_limit:
            return Stored(inline=data)
        try:
            sha256 = self._store().put_value(data)
        except ArtifactUnavailableError as error:
            if len(data) > RESCUE_LIMIT and not whatever_size:
                raise
            # A paid result must not be lost because another server is down; the row holds it as it is.
            self._host.log(f"the result of '{name}' is kept in the ledger's row: {error}", warning=True)
            return Stored(inline=data)
        failpoint("after_artifact_put", name)
        return Stored(sha256=sha256)

    def put(self, data: bytes, name: str) -> bytes:
        """
        Put bytes into the artifact store whatever their size, encrypted where keys are configured.

        :param data: no payload of the codec's, but bytes of any format.
        :param name: the step's name, for failpoints.
        :return: their address, which ``raw`` reads from.
        """
        sha256 = self._store().put_value(self._cipher.lock(data))
        failpoint("after_artifact_put", name)
        return sha256

    def keep_inline(self, data: bytes) -> bytes:
        """
        Give encoded bytes as a row of any size keeps them: encrypted where keys are configured.

        :param data: the encoded bytes.
        """
        return self._cipher.lock(data)

    def raw(self, stored: Stored, name: str) -> bytes:
        """
        Read encoded bytes back.

        :param stored: what the ledger keeps.
        :param name: the step's or effect's name: a missing artifact is reported by it.
        """
        return self._cipher.open(self._locked(stored, name), f"the record of '{name}'")

    def _locked(self, stored: Stored, name: str) -> bytes:
        if stored.inline is not None:
            return stored.inline
        assert stored.sha256 is not None
        try:
            return self._store().get_value(stored.sha256)
        except ArtifactError as error:
            error.add_note(f"aiflow: this artifact belongs to the record of '{name}'")
            raise

    def load(self, stored: Stored, name: str, as_type: Any = None) -> Any:
        """
        Read a value back.

        :param stored: what the ledger keeps.
        :param name: the step's or effect's name: a missing artifact is reported by it.
        :param as_type: the class that rebuilds it.
        """
        return decode(self.raw(stored, name), as_type=as_type)

    def read(self, inline: bytes | None, sha256: bytes | None, name: str, as_type: Any = None) -> Any:
        """
        Read a value back from its two columns, one of which is set.

        :param inline: the encoded bytes.
        :param sha256: the address of the artifact that holds them.
        :param name: the step's name: a missing artifact is reported by it.
        :param as_type: the class that rebuilds it.
        """
        if self._in_clear and inline is not None and not inline.startswith(MAGIC):
            return decode(inline, as_type=as_type)
        return self.load(Stored(inline, sha256), name, as_type)

    def load_done(self, stored: Stored, name: str, as_type: Any = None) -> Any:
        """
        Read the result of what was done: as its class, or as plain data where the class can't be rebuilt from it.

        :param stored: what the ledger keeps.
        :param name: the effect's name.
        :param as_type: the class that rebuilds it.
        """
        data = self.raw(stored, name)
        try:
            return decode(data, as_type=as_type)
        except PayloadDecodeError:
            return decode(data)

    def as_text(self, value: Any) -> str:
        """
        Show, for people, a value that can't be stored; secrets are masked.

        :param value: any object, also one that can't be shown.
        """
        try:
            text = repr(value)
        except Exception:  # the author's
            text = f"<{type(value).__name__} that can't be shown>"
        return self._host.redact(text).encode("utf-8", "backslashreplace").decode()

    def secret_in(self, value: Any) -> str | None:
        """
        Look for a secret.

        :param value: what is about to be stored.
        :return: the path, ``None``: none known.
        """
        return find_secret(value, self._host.is_secret)

    def secret_in_clear(self, value: Any) -> str | None:
        """
        Look for a secret that would be stored in clear.

        :param value: what is about to be stored.
        :return: the path, ``None``: none known, or payloads are encrypted.
        """
        return None if self._cipher.active else self.secret_in(value)


def result_hash(stored: Stored) -> bytes:
    """
    Give the hash of the bytes that are kept, wherever they are.

    :param stored: what the ledger keeps.
    """
    if stored.sha256 is not None:
        return stored.sha256
    assert stored.inline is not None
    return hashlib.sha256(stored.inline).digest()
