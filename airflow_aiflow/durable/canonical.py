"""
Give values one canonical form each, for fingerprints: equal forms mean equal inputs, and nothing else does.

Class and value count (``1``, ``1.0`` and ``True`` differ, so do a list and a tuple), the order of dicts and sets does
not, text is never normalised. What has no canonical form is refused with its path; it is never left out, for two
different inputs would then share one result.

Every part goes with its kind and its length, so no two different values have one form.
"""

from __future__ import annotations

import enum
import functools
import hmac
import re
import struct
import typing
from collections import OrderedDict, UserString
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    NoneType,
    WrapperDescriptorType,
)
from typing import Any, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

from airflow_aiflow.durable.arguments import bound_to, captured_variables, default_values, is_local
from airflow_aiflow.durable.payload_adapters import DEFAULT, Adapters
from airflow_aiflow.durable.payload_writer import BASES
from airflow_aiflow.durable.trail import class_name, path_of, qualified_name

#: Deepest nesting that has a form; the payload codec stores no deeper value either.
MAX_DEPTH = 200

#: An object may say itself what it counts as: a method of its class that returns a value with a canonical form.
HOOK = "__aiflow_fingerprint__"

_METHODS = MethodType | BuiltinFunctionType | MethodWrapperType
_DESCRIPTORS = MethodDescriptorType | WrapperDescriptorType | ClassMethodDescriptorType


class NoCanonicalForm(Exception):
    """
    Say that part of a value has no canonical form.

    :param path: where it sits.
    :param value: what sits there.
    :param why: a sentence for people; empty where its class says it all.
    """

    def __init__(self, path: str, value: object, why: str = "") -> None:
        self.path = path
        self.class_name = type(value).__qualname__
        self.why = why
        super().__init__(f"{path or 'the value'} ({self.class_name}) has no canonical form{why and '. ' + why}")


@dataclass(frozen=True, slots=True)
class Secrets:
    """
    Let secret texts count by a keyed hash, so that a fingerprint can't be used to guess them.

    :param is_secret: says whether a text is, or holds, a secret.
    :param key: of the HMAC.
    """

    is_secret: Callable[[str], bool]
    key: bytes


class CanonicalWriter:
    """
    Write the canonical form of values.

    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    """

    def __init__(self, adapters: Adapters = DEFAULT, secrets: Secrets | None = None) -> None:
        self._adapters = adapters
        self._secrets = secrets
        self._out: list[bytes] = []
        self._trail: list[object] = []
        self._open: dict[int, int] = {}
        #: Whether it ever wrote bytes, or a function's code: what is not for people's eyes.
        self.opaque = False

    def form(self, value: Any, root: str | None = None) -> bytes:
        """
        Write one value.

        :param value: the value.
        :param root: its name, with which paths begin.
        :return: bytes that no other value has.
        :raises NoCanonicalForm: if part of it has none.
        """
        # The two commonest values, without the machinery: a map writes a million of them.
        if type(value) is int:
            raw = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
            return b"i%d:%b" % (len(raw), raw)
        if type(value) is str and (self._secrets is None or not self._secrets.is_secret(value)):
            raw = value.encode("utf-8", "surrogatepass")
            return b"s%d:%b" % (len(raw), raw)
        self._trail[:] = () if root is None else (root,)
        try:
            return self._sub(value)
        except NoCanonicalForm:
            raise
        except RecursionError:
            raise NoCanonicalForm(path_of(self._trail), value, "It is nested too deep") from None
        except Exception as error:
            # Reading an object runs its own code: a property, an iterator, its hook.
            why = f"Reading it raised {type(error).__name__}: {error}"
            raise NoCanonicalForm(path_of(self._trail), value, why) from error
        finally:
            self._out.clear()
            self._open.clear()

    def _sub(self, value: Any) -> bytes:
        before = self._out
        self._out = []
        try:
            self._write(value)
            return b"".join(self._out)
        finally:
            self._out = before

    def _raw(self, kind: bytes, raw: bytes) -> None:
        self._out.append(b"%b%d:" % (kind, len(raw)))
        self._out.append(raw)

    def _name(self, kind: bytes, name: str) -> None:
        self._raw(kind, name.encode("utf-8", "surrogatepass"))

    def _write(self, value: Any) -> None:
        writer = _SCALARS.get(type(value))
        if writer is not None:
            writer(self, value)
            return
        key = id(value)
        if key in self._open:
            if isinstance(value, FunctionType):
                # A local function that calls itself captures itself: it counts by its place in the nesting.
                self._raw(b"^", b"%d" % self._open[key])
                return
            raise NoCanonicalForm(path_of(self._trail), value, "It refers to itself")
        if len(self._open) >= MAX_DEPTH:
            raise NoCanonicalForm(path_of(self._trail), value, f"It is nested deeper than {MAX_DEPTH} levels")
        self._open[key] = len(self._open)
        (_CONTAINERS.get(type(value)) or CanonicalWriter._object)(self, value)
        del self._open[key]

    # --- exact classes ------------------------------------------------------------------------------------------------

    def _text(self, value: str) -> None:
        raw = value.encode("utf-8", "surrogatepass")
        if self._secrets is not None and self._secrets.is_secret(value):
            self._raw(b"m", hmac.digest(self._secrets.key, raw, "sha256"))
        else:
            self._raw(b"s", raw)

    def _bytes(self, value: bytes) -> None:
        self.opaque = True
        self._raw(b"b" if type(value) is bytes else b"y", bytes(value))

    def _int(self, value: int) -> None:
        # Not as decimal text: Python refuses to convert long ones, and takes quadratic time.
        self._raw(b"i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))

    def _float(self, value: float) -> None:
        self._raw(b"f", struct.pack(">d", value) if value == value else b"nan")

    def _fixed(self, value: bool | None) -> None:
        self._out.append(b"N" if value is None else b"T" if value else b"F")

    def _items(self, kind: bytes, values: Iterable[Any]) -> None:
        start = len(self._out)
        self._out.append(b"")
        count = 0
        for count, value in enumerate(values, 1):
            self._trail.append(count - 1)
            self._write(value)
            self._trail.pop()
        self._out[start] = b"%b%d:" % (kind, count)

    def _list(self, value: Iterable[Any]) -> None:
        self._items(b"l", value)

    def _tuple(self, value: tuple[Any, ...]) -> None:
        self._items(b"t", value)

    def _dict(self, value: Mapping[Any, Any]) -> None:
        self._pairs(b"d", sorted(((self._sub(key), key, one) for key, one in value.items()), key=lambda pair: pair[0]))

    def _pairs(self, kind: bytes, pairs: Sequence[tuple[bytes, Any, Any]]) -> None:
        self._out.append(b"%b%d:" % (kind, len(pairs)))
        for written, key, one in pairs:
            self._out.append(written)
            self._trail.append(key)
            self._write(one)
            self._trail.pop()

    def _set(self, value: Iterable[Any]) -> None:
        written = sorted(map(self._sub, value))
        self._out.append(b"%b%d:" % (b"z" if isinstance(value, frozenset) else b"S", len(written)))
        self._out.extend(written)

    # --- everything else ----------------------------------------------------------------------------------------------

    def _object(self, value: Any) -> None:
        cls = type(value)
        hook = getattr(cls, HOOK, None)
        adapter = None if hook else self._adapters.storing(value)
        if hook is not None:
            self._named(b"h", cls, hook(value))
        elif adapter is not None:
            self._name(b"a", adapter.tag)
            self._write(self._adapted(adapter.to_plain, value))
        elif isinstance(value, enum.Enum):
            self._named(b"e", cls, value.value)
        elif is_dataclass(cls):
            self._fields(cls, {f.name: getattr(value, f.name) for f in fields(cls) if hasattr(value, f.name)})
        elif (family := self._adapters.modelling(value)) is not None:
            plain = family.to_plain(value)
            self._fields(cls, plain) if isinstance(plain, dict) else self._named(b"o", cls, plain)
        elif cls.__name__ == "Connection" and isinstance(getattr(value, "conn_id", None), str):
            # What a connection leads to may be moved or get another password; which one was asked for is the input.
            self._name(b"k", value.conn_id)
        elif not self._callable(value) and not self._based(value):
            raise NoCanonicalForm(path_of(self._trail), value, _why_not(value))

    def _adapted(self, to_plain: Callable[[Any], Any], value: Any) -> Any:
        try:
            return to_plain(value)
        except ValueError as error:
            raise NoCanonicalForm(path_of(self._trail), value, str(error)) from error

    def _named(self, kind: bytes, cls: type, plain: Any) -> None:
        self._name(kind, class_name(cls))
        self._write(plain)

    def _fields(self, cls: type, held: dict[str, Any]) -> None:
        self._name(b"o", class_name(cls))
        self._dict(held)

    def _based(self, value: Any) -> bool:
        """Write an instance of a subclass by its class and the base's data, an abstract container as a plain one."""
        cls = type(value)
        for base, plain in BASES:
            if isinstance(value, base):
                self._named(b"c", cls, plain(value))
                return True
        if isinstance(value, OrderedDict):
            self._name(b"c", class_name(cls))
            self._pairs(b"p", [(self._sub(key), key, one) for key, one in value.items()])
        elif isinstance(value, dict | list | tuple | set | frozenset):
            self._name(b"c", class_name(cls))
            next(write for base, write in _CONTAINERS.items() if isinstance(value, base))(self, value)
        elif isinstance(value, Mapping):
            self._dict(dict(value.items()))
        elif isinstance(value, Set):
            self._set(set(value))
        elif isinstance(value, Sequence) and not isinstance(value, memoryview | UserString):
            # Airflow hands over lists that it reads piece by piece: the same input as the list itself.
            self._list(value)
        elif isinstance(value, PurePath | ZoneInfo):
            self._named(b"c", cls, value.key or str(value) if isinstance(value, ZoneInfo) else str(value))
        else:
            return False
        return True

    def _callable(self, value: Any) -> bool:
        """Write what can be called, and types: by name, and by what it carries where its name does not say it all."""
        if isinstance(value, functools.partial):
            self._out.append(b"P")
            self._write(value.func)
            self._tuple(value.args)
            self._dict(value.keywords)
        elif isinstance(value, _METHODS) and bound_to(value) is not None:
            self._name(b"B", value.__name__)
            self._trail.append("self")
            self._write(bound_to(value))
            self._trail.pop()
        elif isinstance(value, FunctionType) and is_local(value):
            self._name(b"L", qualified_name(value.__module__, value.__qualname__))
            self._code(value.__code__)
            self._dict(captured_variables(value))
            self._dict(default_values(value))
        elif isinstance(value, functools._lru_cache_wrapper):
            self._write(value.__wrapped__)
        elif get_origin(value) is not None:
            self._out.append(b"G")
            self._write(get_origin(value))
            self._tuple(get_args(value))
        elif isinstance(value, typing._SpecialForm):
            self._name(b"n", f"typing.{value._name}")  # type: ignore[attr-defined]
        elif isinstance(value, FunctionType | BuiltinFunctionType | _DESCRIPTORS | type):
            self._name(b"n", qualified_name(getattr(value, "__module__", None), value.__qualname__))
        else:
            return False
        return True

    def _code(self, code: CodeType) -> None:
        self.opaque = True
        self._raw(b"C", code.co_code)
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._tuple((*shape, code.co_flags, code.co_names, parameters, code.co_freevars))
        self._out.append(b"%d:" % len(code.co_consts))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(constant)
            else:
                self._write(constant)


def _why_not(value: object) -> str:
    if hasattr(value, "__next__"):
        return "It can be read only once: pass list(...) of it"
    if hasattr(value, "__await__"):
        return "It is not awaited yet: pass what it gives"
    return ""


_Write = Callable[[CanonicalWriter, Any], None]


def _moment(kind: bytes) -> _Write:
    def write(writer: CanonicalWriter, value: datetime | time) -> None:
        zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
        writer._name(kind, f"{value.isoformat()} {value.fold} {zone or ''}")

    return write


def _as_text(kind: bytes) -> _Write:
    return lambda writer, value: writer._name(kind, str(value))


def _as_items(kind: bytes, items: Callable[[Any], tuple[Any, ...]]) -> _Write:
    return lambda writer, value: writer._items(kind, items(value))


_SCALARS: dict[type, _Write] = {
    str: CanonicalWriter._text,
    int: CanonicalWriter._int,
    float: CanonicalWriter._float,
    bool: CanonicalWriter._fixed,
    NoneType: CanonicalWriter._fixed,
    bytes: CanonicalWriter._bytes,
    bytearray: CanonicalWriter._bytes,
    datetime: _moment(b"w"),
    time: _moment(b"W"),
    date: _as_text(b"D"),
    Decimal: _as_text(b"M"),
    UUID: _as_text(b"u"),
    timezone: _as_items(b"Z", lambda value: (value.utcoffset(None), value.tzname(None))),
    timedelta: _as_items(b"q", lambda value: (value.days, value.seconds, value.microseconds)),
    complex: _as_items(b"x", lambda value: (value.real, value.imag)),
    Fraction: _as_items(b"r", lambda value: (value.numerator, value.denominator)),
    range: _as_items(b"R", lambda value: (value.start, value.stop, value.step)),
    re.Pattern: _as_items(b"X", lambda value: (value.pattern, value.flags)),
    slice: _as_items(b"j", lambda value: (value.start, value.stop, value.step)),
    type(...): lambda writer, value: writer._out.append(b"."),
}

_CONTAINERS: dict[type, _Write] = {
    list: CanonicalWriter._list,
    tuple: CanonicalWriter._tuple,
    dict: CanonicalWriter._dict,
    set: CanonicalWriter._set,
    frozenset: CanonicalWriter._set,
}
