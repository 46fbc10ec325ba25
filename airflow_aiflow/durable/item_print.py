"""
Fingerprint the items of a map, whose other parts are the same for all.

What is the same is written once; an item then costs its own form and one hash. The digests are those of ``print_step``
and ``print_parts``: which way a call was printed must never show in its key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from zlib import crc32

from airflow_aiflow.durable.arguments import bind_arguments, captured_variables
from airflow_aiflow.durable.canonical import CanonicalWriter, NoCanonicalForm, Secrets
from airflow_aiflow.durable.fingerprint import PRINT_BYTES, Printed, no_form, part_form, print_step, short_prints
from airflow_aiflow.durable.payload_adapters import DEFAULT, Adapters
from airflow_aiflow.durable.step_arguments import MOST_OF_ONE
from airflow_aiflow.exceptions import StepInputError

#: Stands where the item will.
_ITEM = object()

#: The place among the parts of what a function is given first, after the version.
_FIRST = 1


class Print(Protocol):
    """Print one item after the other. Used by one thread at a time."""

    def __call__(self, item: Any) -> Printed:
        """Give an item's fingerprint, and what tells people which part of two calls differs."""

    def digest(self, item: Any) -> bytes:
        """Give the fingerprint alone: a replay needs no more."""


class _OnePart:
    """
    Print calls that differ in one part.

    :param writer: used by one thread at a time.
    :param head: what is hashed before that part's form.
    :param tail: what is hashed after it.
    :param names: of all parts.
    :param before: the short prints of the parts before it.
    :param after: those of the parts after it.
    :param form: gives the part's form.
    :param writer: writes that form.
    :param others: the beginnings of the forms of the others, before it and after it.
    """

    __slots__ = ("_after", "_before", "_form", "_head", "_names", "_others", "_tail", "_writer")

    def __init__(
        self,
        head: bytes,
        tail: bytes,
        names: tuple[str, ...],
        before: bytes,
        after: bytes,
        form: Callable[[Any], bytes],
        writer: CanonicalWriter,
        others: tuple[Sequence[bytes], Sequence[bytes]],
    ) -> None:
        self._head, self._tail, self._names = head, tail, names
        self._before, self._after, self._form, self._writer = before, after, form, writer
        self._others = tuple(tuple(each[:MOST_OF_ONE] for each in side) for side in others)

    def digest(self, item: Any) -> bytes:
        return hashlib.sha256(b"%b%b%b" % (self._head, self._form(item), self._tail)).digest()

    def __call__(self, item: Any) -> Printed:
        form = self._form(item)
        digest = hashlib.sha256(b"%b%b%b" % (self._head, form, self._tail)).digest()
        short = b"%b%b%b" % (self._before, crc32(form).to_bytes(PRINT_BYTES, "big"), self._after)
        before, after = self._others
        heads = (*before, form[:MOST_OF_ONE], *after)
        return Printed(digest, self._names, short, heads, self._writer.opaque, len(before))


class _AllParts:
    """Print the long way."""

    __slots__ = ("_printed",)

    def __init__(self, printed: Callable[[Any], Printed]) -> None:
        self._printed = printed

    def __call__(self, item: Any) -> Printed:
        return self._printed(item)._replace(item=_FIRST)

    def digest(self, item: Any) -> bytes:
        return self._printed(item).digest


class PartOfItem:
    """
    Print of each item the part that decides its outcome.

    :param printed: prints that part.
    :param part_of: gives it.
    """

    __slots__ = ("_part_of", "_printed")

    def __init__(self, printed: Print, part_of: Callable[[Any], Any]) -> None:
        self._printed, self._part_of = printed, part_of

    def __call__(self, item: Any) -> Printed:
        """Print an item's part."""
        return self._printed(self._part_of(item))

    def digest(self, item: Any) -> bytes:
        """Give the fingerprint of an item's part."""
        return self._printed.digest(self._part_of(item))


def item_printer(
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    version: str | int | None = None,
    adapters: Adapters = DEFAULT,
    secrets: Secrets | None = None,
) -> Print:
    """
    Make what gives ``print_step(name, fn, (item, *args))`` of one item after the other.

    :param name: the map's name.
    :param fn: the author's function; it is given the item first.
    :param args: what it is given with each item.
    :param version: changes the fingerprint where the author wants a miss.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    :raises StepInputError: if one of ``args``, or what the function captures, has no canonical form.
    :raises TypeError: if the arguments do not fit the function.
    """
    try:
        bound = bind_arguments(fn, (_ITEM, *args))
    except TypeError as error:
        raise TypeError(f"step {name!r}: {error}") from None
    places = [place for place, (_, value) in enumerate(bound) if value is _ITEM]
    if len(places) != 1:
        # The item is one of ``*values``: what is around it is not the same text for all.
        return _AllParts(
            lambda item: print_step(name, fn, (item, *args), version=version, adapters=adapters, secrets=secrets)
        )
    captured = sorted(captured_variables(fn).items())
    return _printer_at(places[0], name, bound, captured, version, CanonicalWriter(adapters, secrets))


def _printer_at(
    place: int,
    name: str,
    bound: list[tuple[str, Any]],
    captured: list[tuple[str, Any]],
    version: str | int | None,
    writer: CanonicalWriter,
) -> Print:
    """Write all but the argument at ``place``, in the form of ``print_step``."""
    forms = [
        b"" if index == place else part_form(writer, name, "is given", part, value)
        for index, (part, value) in enumerate(bound)
    ]
    held = [part_form(writer, name, "captures", part, value) for part, value in captured]
    root, stated = bound[place][0], writer.form(version)
    named = [writer.form(part) + form for (part, _), form in zip(bound, forms, strict=True)]
    tail = b"".join(named[place + 1 :])
    write = writer.form

    def form(item: Any) -> bytes:
        try:
            return write(item, root)
        except NoCanonicalForm as error:
            raise no_form(name, "is given", error) from error.__cause__

    if captured:
        inside = (writer.form(part) + form for (part, _), form in zip(captured, held, strict=True))
        tail += b"captured;%d:%b" % (len(captured), b"".join(inside))
    return _OnePart(
        b"step;%b%b%d:%b" % (writer.form(name), stated, len(bound), b"".join(named[: place + 1])),
        tail,
        ("version", *(part for part, _ in bound), *(part for part, _ in captured)),
        short_prints([stated, *forms[:place]]),
        short_prints([*forms[place + 1 :], *held]),
        form,
        writer,
        ([stated, *forms[:place]], [*forms[place + 1 :], *held]),
    )


def part_printer(
    named: Sequence[tuple[str, Any]],
    place: int,
    *,
    adapters: Adapters = DEFAULT,
    secrets: Secrets | None = None,
    check: Callable[[Any], None] | None = None,
) -> Print:
    """
    Make what gives ``print_parts`` with another value at one place, one after the other.

    :param named: (name, value) in order; the value at ``place`` is not looked at.
    :param place: of the part that differs.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    :param check: raises where a value can't stand at that place; called before anything else.
    :raises StepInputError: if one of the others has no canonical form.
    """
    writer = CanonicalWriter(adapters, secrets)

    def form(value: Any) -> bytes:
        try:
            return writer.form(value)
        except NoCanonicalForm as error:
            raise StepInputError(str(error)) from error.__cause__

    def checked(value: Any) -> bytes:
        if check is not None:
            check(value)
        return form(value)

    forms = [b"" if index == place else form(value) for index, (_, value) in enumerate(named)]
    return _OnePart(
        b"%d:%b" % (len(named), b"".join(forms[:place])),
        b"".join(forms[place + 1 :]),
        tuple(name for name, _ in named),
        short_prints(forms[:place]),
        short_prints(forms[place + 1 :]),
        checked,
        writer,
        (forms[:place], forms[place + 1 :]),
    )


def key_adder(*, adapters: Adapters = DEFAULT) -> Callable[[bytes, str], bytes]:
    """
    Make what lets an item's own key count beside what it is: ``fingerprint(digest, key)``, for one after the other.

    :return: given the item's digest and its key, 32 bytes.
    """
    writer = CanonicalWriter(adapters)

    def add(digest: bytes, key: str) -> bytes:
        return hashlib.sha256(b"2:%b%b" % (writer.form(digest), writer.form(key))).digest()

    return add
