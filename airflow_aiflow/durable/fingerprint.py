"""
Fingerprints: what decides whether two calls are the same call.

A step's key holds its name, its arguments (captured variables are arguments too) and ``version=``; never the body of
its function, nor what the function reads beside its arguments. A part that has no canonical form means that there is
no key: leaving it out would let two different inputs share one result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from airflow_aiflow.durable.arguments import bind_arguments, captured_variables
from airflow_aiflow.durable.canonical import HOOK, CanonicalWriter, NoCanonicalForm, Secrets
from airflow_aiflow.durable.payload_adapters import DEFAULT, Adapters
from airflow_aiflow.exceptions import StepInputError

__all__ = [
    "HOOK",
    "HashChain",
    "Secrets",
    "StepInputError",
    "bind_arguments",
    "canonical",
    "captured_variables",
    "fingerprint",
    "step_fingerprint",
]


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

    :param name: the step's name.
    :param fn: the author's function: its parameters' names and defaults, and what it captures.
    :param args: the author's arguments.
    :param cache_key: counts instead of arguments and captured variables, where it is given.
    :param version: changes the fingerprint where the author wants a miss.
    :param adapters: foreign classes that have a plain form.
    :param secrets: how secret texts count; ``None``: as any text.
    :return: 32 bytes, SHA-256.
    :raises StepInputError: if an argument or captured variable has no canonical form: there is no key, nothing ran.
    :raises TypeError: if the arguments do not fit the function.
    """
    writer = CanonicalWriter(adapters, secrets)
    hasher = hashlib.sha256(b"step;")
    hasher.update(writer.form(name))
    hasher.update(writer.form(version))
    if cache_key is not None:
        hasher.update(b"cache_key;")
        try:
            hasher.update(writer.form(cache_key))
        except NoCanonicalForm as error:
            raise StepInputError(f"step {name!r}: cache_key= takes plain values; {error}") from error.__cause__
        return hasher.digest()
    try:
        bound = bind_arguments(fn, args)
    except TypeError as error:
        raise TypeError(f"step {name!r}: {error}") from None
    _update(hasher, writer, name, "is given", bound)
    captured = captured_variables(fn)
    if captured:
        hasher.update(b"captured;")
        _update(hasher, writer, name, "captures", sorted(captured.items()))
    return hasher.digest()


def _update(hasher: Any, writer: CanonicalWriter, step: str, verb: str, named: list[tuple[str, Any]]) -> None:
    hasher.update(b"%d:" % len(named))
    for name, value in named:
        hasher.update(writer.form(name))
        hasher.update(_form(writer, step, verb, name, value))


def _form(writer: CanonicalWriter, step: str, verb: str, name: str, value: Any) -> bytes:
    try:
        return writer.form(value, root=name)
    except NoCanonicalForm as error:
        way_out = error.why or "Pass plain values, create the client inside, or give cache_key="
        raise StepInputError(
            f"step {step!r} {verb} {error.path!r} ({error.class_name}), which has no canonical form. {way_out}"
        ) from error.__cause__


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
