"""
Show canonical forms to people, also those of which only the beginning was kept.

What a form holds of a secret is a hash, so what is shown holds none either. Nothing is rebuilt: classes are left out,
functions are names, bytes are counted. What is damaged is shown as far as it goes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

#: Stands for a secret.
HIDDEN = "***"

#: Names a stored file by its address. No mapping is shown with this key: whoever writes one is given no file by it.
ARTIFACT = "$artifact"

#: Stands for what was cut off.
CUT = "..."

#: Deepest nesting that is read; a form is never deeper.
DEEPEST = 250

#: Digits of a length: more are no length.
DIGITS = 20

#: Kind of a value that is kept as JSON already.
AS_JSON = b"J"


class _End(Exception):
    """The form was cut here."""


def show(form: bytes, hides: Callable[[str], bool] | None = None) -> tuple[Any, bool]:
    """
    Give a form as plain JSON data.

    :param form: the beginning of a canonical form, or all of it.
    :param hides: says of a mapping's key whether its value is a secret; ``None``: none is.
    :return: the data, and whether some was cut off.
    """
    reader = _Reader(form, hides)
    try:
        value = reader.value()
    except _End:
        return CUT, True
    except (ValueError, TypeError, OverflowError, struct.error, RecursionError):
        return "(not readable)", True
    return value, reader.cut


def as_json(form: bytes, hides: Callable[[str], bool], most: int) -> bytes:
    """
    Put a form into one that holds neither bytes nor the values of keys that name a secret.

    :param form: see ``show``.
    :param hides: see ``show``.
    :param most: about as many bytes as it may have.
    """
    value, cut = show(form, hides)
    text = _dump(value, cut)
    while len(text) > most and len(form) > 1:
        form = form[: len(form) // 2]
        text = _dump(show(form, hides)[0], True)
    return b"%b%d:%b" % (AS_JSON, len(text), text)


def _dump(value: Any, cut: bool) -> bytes:
    return json.dumps([value, cut], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


class _Reader:
    def __init__(self, form: bytes, hides: Callable[[str], bool] | None) -> None:
        self._form, self._hides = form, hides
        self._at, self._depth = 0, 0
        self.cut = False

    def value(self) -> Any:
        """Read one value."""
        kind = self._form[self._at : self._at + 1]
        if not kind:
            raise self._ended()
        self._at += 1
        read = _KINDS.get(kind)
        if read is None or self._depth > DEEPEST:
            raise ValueError(f"no kind: {kind!r}")
        self._depth += 1
        try:
            return read(self)
        finally:
            self._depth -= 1

    def _ended(self) -> _End:
        self._at, self.cut = len(self._form), True
        return _End()

    def number(self) -> int:
        """Read a length."""
        end = self._form.find(b":", self._at, self._at + DIGITS)
        if end < 0:
            if len(self._form) - self._at < DIGITS:
                raise self._ended()
            raise ValueError("no length")
        number = int(self._form[self._at : end])
        self._at = end + 1
        return number

    def raw(self) -> bytes:
        """Read bytes of which all are needed."""
        length = self.number()
        end = self._at + length
        if end > len(self._form):
            raise self._ended()
        found, self._at = self._form[self._at : end], end
        return found

    def name(self) -> str:
        """Read a name."""
        return _text(self.raw())

    def text(self) -> str:
        """Read a text, or its beginning."""
        length = self.number()
        found = self._form[self._at : self._at + length]
        self._at += len(found)
        if len(found) == length:
            return _text(found)
        self.cut = True
        return f"{found.decode('utf-8', 'ignore')}{CUT} ({length:,} bytes)"

    def counted(self) -> str:
        """Pass bytes over."""
        length = self.number()
        self._at = min(self._at + length, len(self._form))
        return f"({length:,} bytes)"

    def hidden(self) -> str:
        """Pass a secret's hash over."""
        self._at = min(self._at + self.number(), len(self._form))
        return HIDDEN

    def items(self) -> list[Any]:
        """Read as many values as there are."""
        count, found = self.number(), []
        for place in range(count):
            if self._at >= len(self._form):
                self.cut = True
                found.append(f"{CUT} {count - place:,} more")
                break
            found.append(self._whole_or_cut())
        return found

    def pairs(self) -> dict[str, Any]:
        """Read as many keys with their values as there are."""
        count, found = self.number(), {}
        for place in range(count):
            if self._at >= len(self._form):
                self.cut = True
                found[CUT] = f"{count - place:,} more"
                break
            key = self._whole_or_cut()
            shown = key if isinstance(key, str) and key != ARTIFACT else json.dumps(key, ensure_ascii=False)
            value = self._whole_or_cut()
            found[shown] = _hidden(value) if self._hides is not None and self._hides(shown) else value
        return found

    def _whole_or_cut(self) -> Any:
        try:
            return self.value()
        except _End:
            return CUT

    def json(self) -> Any:
        """Read what was put into JSON."""
        value, cut = json.loads(self.raw())
        self.cut = self.cut or bool(cut)
        return value

    def number_as_float(self) -> Any:
        """Read a float."""
        raw = self.raw()
        if raw == b"nan":
            return "nan"
        number = struct.unpack(">d", raw)[0]
        return number if abs(number) != float("inf") else str(number)

    def code(self) -> None:
        """Pass a function's code over."""
        self._at += 1
        self.counted()
        self.value()
        for _ in range(self.number()):
            if self._form[self._at : self._at + 1] == b"C":
                self.code()
            else:
                self.value()


def _hidden(value: Any) -> Any:
    """Hide a secret as Airflow does: whatever is text in it, and no number."""
    if isinstance(value, dict):
        return {name: _hidden(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return HIDDEN if isinstance(value, str) else value


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass").encode("utf-8", "backslashreplace").decode()


def _whole(reader: _Reader) -> Any:
    number = int.from_bytes(reader.raw(), "big", signed=True)
    # Beyond it a browser rounds, and Python refuses to write very long ones.
    return number if abs(number) <= 2**53 else str(number) if abs(number) < 1 << 1000 else "(a very long number)"


def _moment(reader: _Reader) -> str:
    moment, _, zone = reader.name().rsplit(" ", 2)
    return f"{moment} {zone}".rstrip()


def _duration(reader: _Reader) -> str:
    days, seconds, microseconds = reader.items()
    return str(timedelta(days, seconds, microseconds))


def _classed(reader: _Reader) -> Any:
    reader.name()
    return reader.value()


def _hooked(reader: _Reader) -> Any:
    name, value = reader.name(), reader.value()
    return {ARTIFACT: value} if name.endswith(".ArtifactRef") else value


def _method(reader: _Reader) -> str:
    name = reader.name()
    reader.value()
    return f"method {name}"


def _local(reader: _Reader) -> str:
    name = reader.name()
    reader.code()
    reader.value()
    reader.value()
    return f"function {name}"


def _partial(reader: _Reader) -> Any:
    return {"partial of": reader.value(), "arguments": reader.value(), "keywords": reader.value()}


def _generic(reader: _Reader) -> str:
    origin, args = reader.value(), reader.value()
    return f"{origin}[{', '.join(map(str, args))}]"


def _words(word: str) -> Callable[[_Reader], str]:
    return lambda reader: f"{word}({', '.join(map(str, reader.items()))})"


_KINDS: dict[bytes, Callable[[_Reader], Any]] = {
    b"N": lambda reader: None,
    b"T": lambda reader: True,
    b"F": lambda reader: False,
    b".": lambda reader: "Ellipsis",
    b"s": _Reader.text,
    b"m": _Reader.hidden,
    b"i": _whole,
    b"f": _Reader.number_as_float,
    b"b": _Reader.counted,
    b"y": _Reader.counted,
    b"w": _moment,
    b"W": _moment,
    b"D": _Reader.name,
    b"M": _Reader.name,
    b"u": _Reader.name,
    b"n": _Reader.name,
    b"k": lambda reader: f"connection {reader.name()}",
    b"^": lambda reader: "(itself: " + reader.name() + ")",
    b"l": _Reader.items,
    b"t": _Reader.items,
    b"S": _Reader.items,
    b"z": _Reader.items,
    b"d": _Reader.pairs,
    b"p": _Reader.pairs,
    b"q": _duration,
    b"Z": _words("zone"),
    b"x": _words("complex"),
    b"r": _words("fraction"),
    b"R": _words("range"),
    b"X": _words("pattern"),
    b"j": _words("slice"),
    b"h": _hooked,
    b"e": _classed,
    b"o": _classed,
    b"c": _classed,
    b"a": _classed,
    b"B": _method,
    b"L": _local,
    b"P": _partial,
    b"G": _generic,
    AS_JSON: _Reader.json,
}
