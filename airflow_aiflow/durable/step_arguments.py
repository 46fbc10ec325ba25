"""
What is kept of a step's arguments for people: their names, and the beginning of each.

Nothing is decided by it, and no replay reads it. The names are kept in clear, as they stand in the code; what was given
is the beginning of its canonical form, in which a secret is a hash. Bytes are not kept, nor what a name says is secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from airflow_aiflow.durable.canonical_reader import HIDDEN, as_json, show
from airflow_aiflow.exceptions import PayloadDecodeError

#: Bytes that are kept of one argument: about a screen of text, so that a row stays small.
MOST_OF_ONE = 1024

#: Bytes that are kept of all arguments of a step: half of what PostgreSQL keeps in one piece.
MOST_OF_ALL = 4096

#: Bytes of a map's item: enough to tell which one it was; there may be a million.
MOST_OF_ITEM = 256

#: Bytes in which the names of a step's arguments are looked for, where they alone are read.
MOST_OF_NAMES = 1024

#: What a secret's form would be, without its hash.
_HIDDEN = b"m0:"

#: Kinds of forms without a text: Airflow's masker leaves them whatever they are called, ``max_tokens`` for example.
_NO_TEXT = (b"", b"N", b"T", b"F", b"i", b"f")

#: Kinds of forms that hold nothing which could have to be left out: no bytes, no keys.
_PLAIN = frozenset(b"NTFsmifwWDMunk.")


@dataclass(frozen=True, slots=True)
class Argument:
    """
    Show an argument.

    :param value: plain JSON data; ``None`` also where nothing is kept.
    :param cut: whether it is only the beginning.
    :param kept: whether it is kept at all.
    """

    name: str
    value: Any
    cut: bool
    kept: bool


class SecretNames:
    """
    Know by its name what is secret.

    :param words: of which one is in the name, in lower case.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        #: Where none of these is in a form, no name in it holds a word, however its parts are joined.
        self._signs = tuple({word.partition("_")[0].encode() for word in words})
        self.hides = lru_cache(maxsize=1024)(self._hides)

    def _hides(self, name: str) -> bool:
        plain = "_".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())
        return any(word in plain for word in self._words)

    def may_be_in(self, form: bytes) -> bool:
        """
        Say whether a form may hold a name that is one.

        :param form: the beginning of one.
        """
        lower = form.lower()
        return any(sign in lower for sign in self._signs)


def pack(
    names: Sequence[str],
    heads: Sequence[bytes],
    secret: SecretNames,
    *,
    opaque: bool = True,
    only: int | None = None,
    lock: Callable[[bytes], bytes] = bytes,
) -> bytes:
    """
    Give what a row keeps.

    :param names: of the arguments, in order.
    :param heads: the beginning of each one's canonical form.
    :param secret: knows by its name what is not to be kept.
    :param opaque: whether bytes may be among them.
    :param only: the place of the one that is kept; ``None``: all.
    :param lock: encrypts all but the names.
    """
    left = MOST_OF_ALL
    body = []
    for place, (name, head) in enumerate(zip(names, heads, strict=True)):
        if only is not None and place != only:
            body.append(b"0:")
            continue
        most = min(left, MOST_OF_ONE if only is None else MOST_OF_ITEM)
        head = head[:most]
        if secret.hides(name) and head[:1] not in _NO_TEXT:
            head = _HIDDEN
        elif head and head[0] not in _PLAIN and (opaque or secret.may_be_in(head)):
            head = as_json(head, secret.hides, most)
        left = max(0, left - len(head))
        body.append(b"%d:%b" % (len(head), head))
    return _named(tuple(names)) + lock(b"".join(body))


@lru_cache(maxsize=256)
def _named(names: tuple[str, ...]) -> bytes:
    text = "\n".join(names).encode("utf-8", "backslashreplace")
    return b"%d:%b" % (len(text), text)


def names_of(data: bytes | None) -> tuple[str, ...] | None:
    """
    Read the names alone.

    :param data: what ``pack`` gave, or its beginning.
    :return: ``None``: none are kept, or not all of them are in that beginning.
    """
    found = None if data is None else _split(data)
    return None if found is None else found[0]


def _split(data: bytes) -> tuple[tuple[str, ...], bytes] | None:
    length, colon, rest = data.partition(b":")
    if not colon or not length.isdigit() or len(rest) < int(length):
        return None
    end = int(length)
    return tuple(rest[:end].decode("utf-8", "replace").split("\n")), rest[end:]


def unpack(data: bytes, unlock: Callable[[bytes], bytes] = bytes) -> list[Argument]:
    """
    Read what a row keeps.

    :param data: what ``pack`` gave.
    :param unlock: decrypts.
    :raises PayloadDecodeError: if it is damaged.
    """
    split = _split(data)
    if split is None:
        raise PayloadDecodeError("what is kept of the arguments is damaged")
    names, body = split
    body, found = unlock(body), []
    for name in names:
        length, colon, rest = body.partition(b":")
        if not colon or not length.isdigit() or len(rest) < int(length):
            raise PayloadDecodeError("what is kept of the arguments is damaged")
        head, body = rest[: int(length)], rest[int(length) :]
        value, cut = show(head) if head else (None, False)
        found.append(Argument(name, value, cut, kept=bool(head)))
    return found


__all__ = ["HIDDEN", "Argument", "SecretNames", "names_of", "pack", "unpack"]
