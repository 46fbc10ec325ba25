"""
Fingerprints: what decides whether two calls are the same call.

A step's key holds its name, its arguments (captured variables are arguments too) and ``version=``; never the body of
its function, nor what the function reads beside its arguments. A part that has no canonical form means that there is
no key: leaving it out would let two different inputs share one result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from airflow_aiflow.durable.arguments import bind_arguments, captured_variables
from airflow_aiflow.durable.canonical import HOOK, CanonicalWriter, NoCanonicalForm, Secrets
from airflow_aiflow.durable.payload_adapters import DEFAULT, Adapters
from airflow_aiflow.durable.step_arguments import MOST_OF_ONE
from airflow_aiflow.exceptions import StepInputError

__all__ = [
    "HOOK",
    "HashChain",
    "Printed",
    "Secrets",
    "StepInputError",
    "bind_arguments",
    "canonical",
    "captured_variables",
    "changed_parts",
    "fingerprint",
    "print_parts",
    "print_prints",
    "print_step",
    "step_fingerprint",
]

#: Bytes of a part's short print. It names the part that changed, for people, among the few parts of two calls that are
#: known to differ: one wrong answer in four billion harms nobody, and a record grows by four bytes an argument.
PRINT_BYTES = 4


class Printed(NamedTuple):
    """
    Hold a call's fingerprint, and what tells people which part of two calls differs.

    :param digest: 32 bytes, SHA-256, over all parts.
    :param names: of the parts, in order; parts of one name are one thing to people.
    :param prints: ``PRINT_BYTES`` of each part, over its canonical form: where that holds a secret, over the secret's
        keyed hash.
    :param heads: the beginning of each part's canonical form.
    :param opaque: whether bytes, or code, may be in those.
    :param item: the place of the one part that is its own, of an item of a map.
    """

    digest: bytes
    names: tuple[str, ...]
    prints: bytes
    heads: tuple[bytes, ...] = ()
    opaque: bool = False
    item: int | None = None


def short_prints(forms: Iterable[bytes]) -> bytes:
    """
    Give the short prints of parts.

    :param forms: canonical forms.
    """
    return b"".join(map(_print, forms))


def _print(form: bytes) -> bytes:
    return crc32(form).to_bytes(PRINT_BYTES, "big")


def changed_parts(before: bytes, now: bytes, names: Sequence[str]) -> list[str] | None:
    """
    Say which parts of two calls differ.

    :param before: short prints of the one.
    :param now: short prints of the other.
    :param names: of the other's parts.
    :return: each name once, in order; ``None``: the calls have other numbers of parts.
    """
    if len(before) != len(now) or len(now) != PRINT_BYTES * len(names):
        return None
    places = range(0, len(now), PRINT_BYTES)
    differ = (
        name
        for name, at in zip(names, places, strict=True)
        if before[at : at + PRINT_BYTES] != now[at : at + PRINT_BYTES]
    )
    return list(dict.fromkeys(differ))


def canonical(value: Any, *, adapters: Adapters = DEFAULT, secrets: Secrets | None = None) -> bytes:
    """
    Give a value's canonical form.

    :param value: the value.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    :return: bytes that no other value has.
    :raises StepInputError: if part of it has none; the message names the path.
    """
    try:
        return CanonicalWriter(adapters, secrets).form(value)
    except NoCanonicalForm as error:
        raise StepInputError(str(error)) from error.__cause__


def fingerprint(*parts: Any, adapters: Adapters = DEFAULT, secrets: Secrets | None = None) -> bytes:
    """
    Hash values injectively.

    :param parts: any values with a canonical form; their number and order count.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    :return: 32 bytes, SHA-256.
    :raises StepInputError: if part of one has none; the message names the path.
    """
    writer = CanonicalWriter(adapters, secrets)
    hasher = hashlib.sha256(b"%d:" % len(parts))
    try:
        for part in parts:
            hasher.update(writer.form(part))
    except NoCanonicalForm as error:
        raise StepInputError(str(error)) from error.__cause__
    return hasher.digest()


def print_prints(what: str, prints: Mapping[str, bytes]) -> bytes:
    """
    Hash what has been hashed part by part: as ``fingerprint(what, sorted(prints.items()))``, written directly.

    :param what: of what they are.
    :param prints: name -> fingerprint.
    :return: 32 bytes, SHA-256.
    """
    raw = what.encode()
    written = [b"2:s%d:%bl%d:" % (len(raw), raw, len(prints))]
    for name, value in sorted(prints.items()):
        raw = name.encode("utf-8", "surrogatepass")
        written.append(b"t2:s%d:%bb%d:%b" % (len(raw), raw, len(value), value))
    return hashlib.sha256(b"".join(written)).digest()


def print_parts(
    named: Sequence[tuple[str, Any]], *, adapters: Adapters = DEFAULT, secrets: Secrets | None = None
) -> Printed:
    """
    Hash values as ``fingerprint`` does, and keep a short print of each.

    :param named: (name, value) in order; the names are for people and do not count.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    :raises StepInputError: if part of a value has no canonical form; the message names the path.
    """
    writer = CanonicalWriter(adapters, secrets)
    try:
        forms = [writer.form(value) for _, value in named]
    except NoCanonicalForm as error:
        raise StepInputError(str(error)) from error.__cause__
    hasher = hashlib.sha256(b"%d:" % len(forms))
    for form in forms:
        hasher.update(form)
    heads = tuple([form[:MOST_OF_ONE] for form in forms])
    return Printed(hasher.digest(), tuple([name for name, _ in named]), short_prints(forms), heads, writer.opaque)


def step_fingerprint(
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    cache_key: Any = None,
    version: str | int | None = None,
    adapters: Adapters = DEFAULT,
    secrets: Secrets | None = None,
) -> bytes:
    """
    Hash everything that decides a step's outcome.

    :return: the digest of ``print_step``, which takes the same parameters.
    """
    return print_step(name, fn, args, cache_key=cache_key, version=version, adapters=adapters, secrets=secrets).digest


def print_step(
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    cache_key: Any = None,
    version: str | int | None = None,
    adapters: Adapters = DEFAULT,
    secrets: Secrets | None = None,
) -> Printed:
    """
    Hash everything that decides a step's outcome, and keep a short print of each part.

    :param name: the step's name.
    :param fn: the author's function: its parameters' names and defaults, and what it captures.
    :param args: the author's arguments.
    :param cache_key: counts instead of arguments and captured variables, where it is given.
    :param version: changes the fingerprint where the author wants a miss.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    :return: its parts are the version and each argument and captured variable, or the version and the ``cache_key``.
    :raises StepInputError: if an argument or captured variable has no canonical form: there is no key, nothing ran.
    :raises TypeError: if the arguments do not fit the function.
    """
    writer = CanonicalWriter(adapters, secrets)
    hasher = hashlib.sha256(b"step;")
    hasher.update(writer.form(name))
    form = writer.form(version)
    hasher.update(form)
    prints, names, heads = bytearray(_print(form)), ["version"], [form[:MOST_OF_ONE]]
    if cache_key is not None:
        hasher.update(b"cache_key;")
        try:
            form = writer.form(cache_key)
        except NoCanonicalForm as error:
            raise StepInputError(f"step {name!r}: cache_key= takes plain values; {error}") from error.__cause__
        hasher.update(form)
        both = (*heads, form[:MOST_OF_ONE])
        return Printed(hasher.digest(), ("version", "cache_key"), bytes(prints) + _print(form), both, writer.opaque)
    try:
        bound = bind_arguments(fn, args)
    except TypeError as error:
        raise TypeError(f"step {name!r}: {error}") from None
    _update(hasher, writer, name, "is given", bound, prints, names, heads)
    captured = captured_variables(fn)
    if captured:
        hasher.update(b"captured;")
        _update(hasher, writer, name, "captures", sorted(captured.items()), prints, names, heads)
    return Printed(hasher.digest(), tuple(names), bytes(prints), tuple(heads), writer.opaque)


def _update(
    hasher: Any,
    writer: CanonicalWriter,
    step: str,
    verb: str,
    named: list[tuple[str, Any]],
    prints: bytearray,
    names: list[str],
    heads: list[bytes],
) -> None:
    hasher.update(b"%d:" % len(named))
    for name, value in named:
        hasher.update(writer.form(name))
        form = part_form(writer, step, verb, name, value)
        hasher.update(form)
        prints += _print(form)
        names.append(name)
        heads.append(form[:MOST_OF_ONE])


def part_form(writer: CanonicalWriter, step: str, verb: str, name: str, value: Any) -> bytes:
    """
    Write the form of an argument or captured variable.

    :param step: the step's name, for the message.
    :param verb: how the step comes to the value, for the message.
    :param name: of the argument.
    :raises StepInputError: if it has none, with its path.
    """
    try:
        return writer.form(value, name)
    except NoCanonicalForm as error:
        raise no_form(step, verb, error) from error.__cause__


def no_form(step: str, verb: str, error: NoCanonicalForm) -> StepInputError:
    """
    Say which part of a step's arguments has no canonical form, and the way out.

    :param step: the step's name.
    :param verb: how the step comes to the value.
    :param error: of the writer.
    """
    way_out = error.why or "Pass plain values, create the client inside, or give cache_key="
    return StepInputError(
        f"step {step!r} {verb} {error.path!r} ({error.class_name}), which has no canonical form. {way_out}"
    )


class HashChain:
    """
    Fingerprint a growing list, such as a chat history, at the cost of what is added.

    Equal lists have equal digests; so a call over a history of n messages costs one message, not n.

    :param messages: what to begin with.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    """

    def __init__(
        self, messages: Iterable[Any] = (), *, adapters: Adapters = DEFAULT, secrets: Secrets | None = None
    ) -> None:
        self._adapters = adapters
        self._secrets = secrets
        self._length = 0
        self._digest = hashlib.sha256(b"chain;").digest()
        self.extend(messages)

    def __len__(self) -> int:
        return self._length

    @property
    def digest(self) -> bytes:
        """Give the fingerprint of all messages so far: 32 bytes."""
        return self._digest

    def append(self, message: Any) -> None:
        """
        Add a message. Changing it afterwards is not seen.

        :raises StepInputError: if part of it has no canonical form; the chain stays as it was.
        """
        form = canonical(message, adapters=self._adapters, secrets=self._secrets)
        self._digest = hashlib.sha256(self._digest + form).digest()
        self._length += 1

    def extend(self, messages: Iterable[Any]) -> None:
        """
        Add messages in order.

        :raises StepInputError: if one has no canonical form; those before it stay added.
        """
        for message in messages:
            self.append(message)

    def copy(self) -> HashChain:
        """Branch off: both chains go on from here by themselves."""
        branch = HashChain(adapters=self._adapters, secrets=self._secrets)
        branch._length, branch._digest = self._length, self._digest
        return branch

    def __aiflow_fingerprint__(self) -> bytes:
        return self._digest
