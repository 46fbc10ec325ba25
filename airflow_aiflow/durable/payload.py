"""
Turn values into bytes that are stored, and back: JSON and nothing but data, never code.

Lossless for what ``payload_tags`` lists; classes of authors (dataclasses, models, enums, named tuples) are stored as
data under their name and rebuilt only by a class that the *calling code* names. What an author gets on the first run
is the decoded form too, so that a replay can't differ.

Three rules must not be relaxed: no name found in stored bytes is ever imported or looked up; a dict of the author that
looks like one of our envelopes stays a dict; text is stored as it is or refused, never repaired.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from airflow_aiflow.durable.payload_adapters import (
    DEFAULT,
    Adapter,
    Adapters,
    Encoded,
    Flattened,
    ModelAdapter,
    Named,
)
from airflow_aiflow.durable.payload_rebuild import Rebuilder, return_type
from airflow_aiflow.durable.payload_tags import BAD_VALUE, TAGS, items, read_float, read_int, text
from airflow_aiflow.durable.payload_writer import MAX_DEPTH, Writer, dump, is_plain, looks_tagged
from airflow_aiflow.exceptions import PayloadDecodeError, PayloadEncodeError

__all__ = [
    "DEFAULT",
    "MAX_DEPTH",
    "Adapter",
    "Adapters",
    "Encoded",
    "Flattened",
    "ModelAdapter",
    "PayloadDecodeError",
    "PayloadEncodeError",
    "decode",
    "encode",
    "return_type",
    "unrestored",
]


def _pair(plain: object) -> tuple[Any, Any]:
    first, second = items(plain, 2)
    return first, second


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": read_int,
    "float": read_float,
    "dict": lambda plain: dict(map(_pair, items(plain))),
    "tuple": lambda plain: tuple(items(plain)),
    "set": lambda plain: set(items(plain)),
    "frozenset": lambda plain: frozenset(items(plain)),
    **{tag.name: tag.from_plain for tag in TAGS.values()},
}


def encode(value: Any, *, adapters: Adapters = DEFAULT) -> Encoded:
    """
    Write a value as bytes.

    :param value: what to store.
    :param adapters: what this process can store beyond the standard library.
    :return: the bytes, and which classes will come back as data.
    :raises PayloadEncodeError: if part of it can't be stored; ``path`` says which part.
    """
    if is_plain(value):
        try:
            return Encoded(dump(value))
        except ValueError:
            pass  # NaN, an infinity or a lone surrogate: the slow way stores or names it
    return Writer(adapters).write(value)


def decode(data: bytes, *, as_type: Any = None, adapters: Adapters = DEFAULT) -> Any:
    """
    Read a value back.

    :param data: what ``encode`` gave.
    :param as_type: what the calling code expects, such as a return annotation: instances of the classes in it are
        rebuilt. Without it they come back as plain data. What was stored as a plain dict stays one. A dict or list of
        annotations gives one for each part of a value of that shape, such as ``{"args": [int, Invoice]}``.
    :param adapters: what this process can read beyond the standard library.
    :raises PayloadDecodeError: if the bytes are damaged, hold a tag that nothing here reads, or do not fit the class
        that is named.
    """
    named = False
    try:
        written = data.decode("utf-8")
        if '"$' not in written:
            return _plain(written)
        named = as_type is not None and '"$object"' in written
        value = _decoder(adapters, keep_names=named).decode(written)
    except (ValueError, RecursionError) as error:
        raise PayloadDecodeError(f"the stored bytes are not a payload: {_brief(error)}") from error
    return Rebuilder(adapters).rebuild(value, as_type) if named else value


def unrestored(encoded: Encoded, decoded: Any, *, adapters: Adapters = DEFAULT) -> tuple[Flattened, ...]:
    """
    Say which classes a reader does not get back, so that the caller can warn once.

    :param encoded: what ``encode`` gave for the author's value.
    :param decoded: what ``decode`` gave for its bytes, with the ``as_type`` that a replay will name.
    :return: the classes that became plain data or another class.
    """
    if not encoded.flattened:
        return ()
    again = {entry.type_name for entry in encode(decoded, adapters=adapters).flattened}
    return tuple(entry for entry in encoded.flattened if entry.type_name not in again)


def _decoder(adapters: Adapters, *, keep_names: bool) -> json.JSONDecoder:
    def revive(found: dict[str, Any]) -> Any:
        # The reader calls this from the inside out, once for each object of the text, so what an envelope holds is
        # read already, and a dict that was written as pairs is never looked at again.
        if not looks_tagged(found):
            return found
        ((key, plain),) = found.items()
        try:
            if key == "$object":
                named = Named(text(_pair(plain)[0]), plain[1])
                return named if keep_names else named.plain
            return _read(key[1:], plain, adapters)
        except BAD_VALUE as error:
            raise PayloadDecodeError(f"a stored {key[1:]!r} is damaged: {_brief(error)}") from error

    return json.JSONDecoder(object_hook=revive, parse_constant=_no_constant)


def _read(tag: str, plain: Any, adapters: Adapters) -> Any:
    reader = _READERS.get(tag)
    if reader is not None:
        return reader(plain)
    adapter = adapters.tagged(tag)
    if adapter is None:
        raise PayloadDecodeError(
            f"nothing here reads the payload tag {tag[:80]!r}: it was written by an adapter that this process has not "
            "registered, or by a later release"
        )
    try:
        return adapter.from_plain(plain)
    except ImportError as error:
        raise PayloadDecodeError(f"a stored {tag!r} can't be read here: {error}") from error


def _plain(written: str) -> Any:
    """Read plain JSON: as ``encode`` writes it, without a look for blanks around it; else as anybody does."""
    try:
        value, end = _PLAIN_DECODER.scan_once(written, 0)  # type: ignore[attr-defined]
    except StopIteration:
        return _PLAIN_DECODER.decode(written)
    return value if end == len(written) else _PLAIN_DECODER.decode(written)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


_PLAIN_DECODER = json.JSONDecoder(parse_constant=_no_constant)
