"""
Write values as JSON: the fast way for what is plain, the slow way for everything that needs an envelope or a refusal.

An envelope is an object with exactly one key, which begins with ``$``. A dict of that shape is written as pairs under
``$dict``, so no dict of an author can be taken for an envelope.
"""

from __future__ import annotations

import json
import math
import os
from collections import UserString
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import NoneType
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.payload_adapters import Adapter, Adapters, Encoded, Flattened
from airflow_aiflow.durable.payload_tags import INT_LIMIT, TAGS, keeps_zone, write_float, write_int
from airflow_aiflow.durable.trail import class_name, path_of
from airflow_aiflow.exceptions import PayloadEncodeError

#: Deepest nesting stored. An envelope takes up to three levels of JSON, and the standard library's reader stops at
#: 1,000 levels less the stack it is called from.
MAX_DEPTH = 200

WAY_OUT = "Return plain data, a dataclass or a pydantic model, or put the bytes away with flow.save"

_SCALARS = frozenset({str, int, float, bool, NoneType})
_PLAIN = _SCALARS | {list, dict}
_TEXT = frozenset({str})

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)

#: Classes whose subclasses are stored as the class itself. The order matters: a datetime is a date.
BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__pos__),
    (float, float.__pos__),
    (complex, complex.__pos__),
    (bytes, bytes),
    (datetime, lambda v: datetime.combine(date(v.year, v.month, v.day), _bare_time(v), v.tzinfo)),
    (date, lambda v: date(v.year, v.month, v.day)),
    (time, lambda v: _bare_time(v).replace(tzinfo=v.tzinfo)),
    (timedelta, lambda v: timedelta(v.days, v.seconds, v.microseconds)),
    (Decimal, Decimal),
    (Fraction, lambda v: Fraction(v.numerator, v.denominator)),
    (UUID, lambda v: UUID(int=v.int)),
)


def _bare_time(moment: datetime | time) -> time:
    return time(moment.hour, moment.minute, moment.second, moment.microsecond, fold=moment.fold)


def dump(plain: Any) -> bytes:
    """
    Write JSON in its shortest form.

    :param plain: text, numbers, booleans, None, lists, dicts with text keys.
    :raises ValueError: for NaN, infinities and lone surrogates.
    """
    return _ENCODER.encode(plain).encode("utf-8")


def looks_tagged(plain: dict[str, Any]) -> bool:
    """Say whether a dict has the shape of an envelope."""
    return len(plain) == 1 and next(iter(plain)).startswith("$")


def is_plain(value: Any, depth: int = 0) -> bool:
    """
    Say whether JSON alone holds a value losslessly, by classes only: a cheap look before the fast way.

    :param value: what to store.
    :param depth: how deep in the whole it sits.
    """
    kind = type(value)
    if kind in _SCALARS:
        return kind is not int or -INT_LIMIT < value < INT_LIMIT
    if kind is list:
        inside = value
    elif kind is dict and _TEXT.issuperset(map(type, value)) and not looks_tagged(value):
        inside = value.values()
    else:
        return False
    kinds = set(map(type, inside))
    if depth >= MAX_DEPTH or not kinds <= _PLAIN:
        return False
    if int in kinds and not all(-INT_LIMIT < one < INT_LIMIT for one in inside if type(one) is int):
        return False
    if list in kinds or dict in kinds:
        return all(is_plain(one, depth + 1) for one in inside if type(one) is list or type(one) is dict)
    return True


class Writer:
    """
    Write one value the slow way.

    :param adapters: what this process can store beyond the standard library.
    """

    def __init__(self, adapters: Adapters) -> None:
        self._adapters = adapters
        self._trail: list[object] = []
        self._open: set[int] = set()
        self._flattened: dict[str, Flattened] = {}

    def write(self, value: Any) -> Encoded:
        """
        Write a value.

        :raises PayloadEncodeError: if part of it can't be stored.
        """
        try:
            plain = self._plain(value)
            return Encoded(dump(plain), tuple(self._flattened.values()))
        except PayloadEncodeError:
            raise
        except RecursionError:
            raise self._refusal(f"nested too deep; {MAX_DEPTH} levels are kept, less where the stack is deep") from None
        except Exception as error:
            # Reading an object runs its own code: a property, an iterator, an adapter.
            raise self._refusal(f"reading it raised {type(error).__name__}: {error}") from error

    def _refusal(self, reason: str) -> PayloadEncodeError:
        return PayloadEncodeError(path_of(self._trail), reason)

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is int:
            return value if -INT_LIMIT < value < INT_LIMIT else {"$int": write_int(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": write_float(value)}
        if kind is bool or value is None:
            return value
        if kind in TAGS:
            return self._tagged(value)
        if id(value) in self._open:
            raise self._refusal("refers to itself; only trees can be stored")
        if len(self._open) >= MAX_DEPTH:
            raise self._refusal(f"nested deeper than {MAX_DEPTH} levels; store a flatter form")
        self._open.add(id(value))
        plain = self._nested(value)
        self._open.discard(id(value))
        return plain

    def _text(self, value: str) -> str:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise self._refusal(
                f"the text holds a lone surrogate (U+{ord(value[error.start]):04X}) at position {error.start}, which "
                "is no character. Decode the bytes it came from with errors='replace', or keep them as bytes"
            ) from None
        return value

    def _tagged(self, value: Any) -> Any:
        tag = TAGS[type(value)]
        if isinstance(value, datetime | time) and not keeps_zone(value):
            if value.utcoffset() is None:
                raise self._refusal(f"a time in a zone that has no fixed offset. {WAY_OUT}")
            self._note(type(value.tzinfo))
        return {f"${tag.name}": self._plain(tag.to_plain(value))}

    def _nested(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            return self._list(value)
        if kind is dict:
            return self._dict(value)
        if kind is tuple:
            return {"$tuple": self._list(value)}
        if kind is set or kind is frozenset:
            return {"$set" if kind is set else "$frozenset": self._elements(value)}
        adapter = self._adapters.storing(value)
        if adapter is not None:
            return {f"${adapter.tag}": self._adapted(adapter, value)}
        if isinstance(value, BaseException):
            raise self._refusal(
                f"an exception ({kind.__qualname__}) is no result. Raise it, or return its text, such as "
                "{'type': type(e).__name__, 'message': str(e)}"
            )
        return self._object(value)

    def _list(self, values: Iterable[Any]) -> list[Any]:
        plain = []
        for index, one in enumerate(values):
            self._trail.append(index)
            plain.append(self._plain(one))
            self._trail.pop()
        return plain

    def _dict(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        pairs = []
        for key, one in values.items():
            self._trail.append(key)
            pairs.append((key if type(key) is str and key.isascii() else self._key(key), self._plain(one)))
            self._trail.pop()
        if all(type(key) is str for key, _ in pairs):
            plain = dict(pairs)
            if not looks_tagged(plain):
                return plain
        self._insist_on_distinct([key for key, _ in pairs])
        return {"$dict": [[key, one] for key, one in pairs]}

    def _key(self, key: Any) -> Any:
        plain = self._plain(key)
        if not _hashable(plain):
            raise self._refusal(
                f"a key or set element of class {type(key).__qualname__} comes back as data, which can't be one. Use a "
                "list, or a tuple of plain values"
            )
        return plain

    def _elements(self, values: Iterable[Any]) -> list[Any]:
        # A set has no order; written in one, the same set gives the same bytes.
        plain = [self._key(one) for one in values]
        self._insist_on_distinct(plain)
        return sorted(plain, key=dump)

    def _insist_on_distinct(self, keys: list[Any]) -> None:
        # An enum member and its value are two keys here, and one key once they are data.
        if len({dump(_as_data(key)) for key in keys}) < len(keys):
            raise self._refusal(f"two of its keys or elements become one when they are stored as data. {WAY_OUT}")

    def _adapted(self, adapter: Adapter, value: Any) -> Any:
        try:
            plain = adapter.to_plain(value)
        except ValueError as error:
            raise self._refusal(str(error)) from error
        return self._plain(plain)

    def _object(self, value: Any) -> Any:
        cls = type(value)
        if isinstance(value, Enum):
            return self._named(cls, value.value)
        if is_dataclass(cls):
            return self._named(cls, {f.name: getattr(value, f.name) for f in fields(cls) if hasattr(value, f.name)})
        family = self._adapters.modelling(value)
        if family is not None:
            return self._named(cls, family.to_plain(value))
        for base, plain in BASES:
            if isinstance(value, base):
                return self._named(cls, plain(value))
        if isinstance(value, tuple):
            return self._named(cls, tuple(value))
        if isinstance(value, Mapping):
            return self._named(cls, dict(value.items()))
        if isinstance(value, frozenset):
            return self._named(cls, frozenset(value))
        if isinstance(value, Set):
            return self._named(cls, set(value))
        if isinstance(value, Sequence) and not isinstance(value, memoryview | UserString):
            return self._named(cls, list(value))
        raise self._refusal(_why_not(value))

    def _named(self, cls: type, data: Any) -> Any:
        self._note(cls)
        return {"$object": [class_name(cls), self._plain(data)]}

    def _note(self, cls: type) -> None:
        name = class_name(cls)
        if name not in self._flattened:
            self._flattened[name] = Flattened(name, path_of(self._trail))


def _hashable(plain: Any) -> bool:
    if isinstance(plain, list):
        return False
    if not isinstance(plain, dict):
        return True
    if not looks_tagged(plain):
        return False
    ((tag, inside),) = plain.items()
    if tag == "$tuple":
        return all(map(_hashable, inside))
    if tag == "$object":
        return _hashable(inside[1])
    return tag not in {"$dict", "$set", "$bytearray"}


def _as_data(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_as_data(one) for one in plain]
    if isinstance(plain, dict):
        return _as_data(plain["$object"][1]) if "$object" in plain else {k: _as_data(v) for k, v in plain.items()}
    return plain


def _why_not(value: object) -> str:
    name = type(value).__qualname__
    if hasattr(value, "__next__"):
        return f"a {name} can be read only once. Return list(...) of it"
    if hasattr(value, "__await__"):
        return f"a {name} is not awaited yet. Return what it gives"
    if isinstance(value, os.PathLike):
        return f"a {name} is a path of another system. Return its text"
    return f"a {name} can't be stored. {WAY_OUT}"
