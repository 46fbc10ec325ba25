"""
Write standard library values as tagged JSON, and read them back.

Each entry is lossless: what comes back has the same type and value. A tag is data: it picks a function from this table
or an adapter that this process registered, and never names something to import.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

#: An integer of more bits is written in hexadecimal. Python refuses to convert more than 4,300 decimal digits by
#: default and may be told to refuse more than 640, so 2,000 bits (603 digits) are read back under every setting.
INT_BITS = 2000
INT_LIMIT = 1 << INT_BITS

#: Names that the codec itself gives a meaning, besides the tags of the table below.
OWN_TAGS = frozenset({"int", "float", "dict", "tuple", "set", "frozenset", "object"})

#: What a malformed tagged value can make a reader raise.
BAD_VALUE = (ValueError, TypeError, ArithmeticError, LookupError, OSError)

_HEX_INT = re.compile(r"-?0x[0-9a-f]+")
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass(frozen=True, slots=True)
class Tag:
    """
    Hold how one class is written and read.

    :param name: the tag, without the ``$`` that marks it in JSON.
    :param to_plain: gives what the codec can write: text, numbers, lists.
    :param from_plain: builds the value; raises one of ``BAD_VALUE`` where its input is not what ``to_plain`` gives.
    """

    name: str
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


def text(plain: object) -> str:
    """
    Insist on text.

    :param plain: what a tag holds.
    :raises TypeError: if it is anything else.
    """
    if type(plain) is not str:
        raise TypeError(f"expected text, found {type(plain).__name__}")
    return plain


def items(plain: object, count: int | None = None) -> list[Any]:
    """
    Insist on a list.

    :param plain: what a tag holds.
    :param count: how many items it must have; ``None``: any number.
    :raises TypeError: if it is anything else.
    """
    if type(plain) is not list or (count is not None and len(plain) != count):
        raise TypeError(f"expected a list of {count if count is not None else 'items'}, found {type(plain).__name__}")
    return plain


def numbers(plain: object, count: int) -> list[int]:
    """
    Insist on a list of whole numbers.

    :param plain: what a tag holds.
    :param count: how many it must have.
    :raises TypeError: if it is anything else.
    """
    found = items(plain, count)
    if any(type(number) is not int for number in found):
        raise TypeError("expected whole numbers")
    return found


def write_int(number: int) -> str:
    """Write an integer of any size."""
    return hex(number)


def read_int(plain: object) -> int:
    """Read what ``write_int`` wrote."""
    digits = text(plain)
    if not _HEX_INT.fullmatch(digits):
        raise ValueError("expected a hexadecimal integer")
    return int(digits, 16)


def write_float(number: float) -> str:
    """Write a float that JSON has no form for."""
    return "nan" if number != number else "inf" if number > 0 else "-inf"


def read_float(plain: object) -> float:
    """Read what ``write_float`` wrote."""
    return _NOT_FINITE[text(plain)]


def read_bytes(plain: object) -> bytes:
    """Read base64."""
    return base64.b64decode(text(plain), validate=True)


def _write_bytes(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


def _write_moment(value: datetime | time) -> Any:
    zone = value.tzinfo
    key = zone.key if isinstance(zone, ZoneInfo) else None
    written = value.isoformat()
    # The offset alone does not bring a zone back, and the text does not say which of two equal wall times is meant.
    return written if key is None and not value.fold else [written, key, value.fold]


def _read_moment(cls: type[datetime] | type[time], plain: object) -> Any:
    if type(plain) is str:
        return cls.fromisoformat(plain)
    written, key, fold = items(plain, 3)
    value = cls.fromisoformat(text(written))
    if key is not None:
        value = value.replace(tzinfo=ZoneInfo(text(key)))
    return value.replace(fold=fold)


def _write_complex(value: complex) -> list[str]:
    return [value.real.hex(), value.imag.hex()]


def _read_complex(plain: object) -> complex:
    real, imaginary = items(plain, 2)
    return complex(float.fromhex(text(real)), float.fromhex(text(imaginary)))


def _read_range(plain: object) -> range:
    return range(*numbers(plain, 3))


def _read_fraction(plain: object) -> Fraction:
    return Fraction(*numbers(plain, 2))


#: How classes of the standard library are written, by exact class.
TAGS: dict[type, Tag] = {
    bytes: Tag("bytes", _write_bytes, read_bytes),
    bytearray: Tag("bytearray", _write_bytes, lambda plain: bytearray(read_bytes(plain))),
    Decimal: Tag("decimal", str, lambda plain: Decimal(text(plain))),
    datetime: Tag("datetime", _write_moment, lambda plain: _read_moment(datetime, plain)),
    date: Tag("date", date.isoformat, lambda plain: date.fromisoformat(text(plain))),
    time: Tag("time", _write_moment, lambda plain: _read_moment(time, plain)),
    timedelta: Tag(
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda plain: timedelta(*numbers(plain, 3)),
    ),
    UUID: Tag("uuid", str, lambda plain: UUID(text(plain))),
    complex: Tag("complex", _write_complex, _read_complex),
    Fraction: Tag("fraction", lambda value: [value.numerator, value.denominator], _read_fraction),
    range: Tag("range", lambda value: [value.start, value.stop, value.step], _read_range),
    type(Path()): Tag("path", str, lambda plain: Path(text(plain))),
}


def keeps_zone(value: datetime | time) -> bool:
    """
    Say whether the zone of a moment comes back as the same kind of zone, not merely as the same offset.

    :param value: a datetime or time.
    """
    zone = value.tzinfo
    return zone is None or type(zone) is timezone or (isinstance(zone, ZoneInfo) and zone.key is not None)
