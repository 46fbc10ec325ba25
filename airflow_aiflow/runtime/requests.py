"""
The canonical request of an effect: what a person reads, what a conflict is judged on, what is called again after doubt.

It holds the function's name, the arguments as the author gave them, and a fingerprint for each argument, so that two
requests can be compared over a choice of arguments without the classes that made them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from types import FunctionType
from typing import Any, Literal

from airflow_aiflow.durable.arguments import bind_arguments, bind_plainly, captured_variables, signature_of
from airflow_aiflow.durable.canonical import Secrets
from airflow_aiflow.durable.effect_context import EffectContext as EffectContext
from airflow_aiflow.durable.fingerprint import fingerprint, print_prints
from airflow_aiflow.durable.payload import decode, encode
from airflow_aiflow.durable.trail import class_name
from airflow_aiflow.exceptions import EffectOptionError, PayloadEncodeError, StepInputError
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.payloads import argument_types

#: How much of a value a conflict's message shows.
SHOWN = 60

#: How much of an argument, and of a whole request, a question to a person shows: what tells one call from another
#: stands in the first lines, and a form is one page.
SHOWN_ARGUMENT, SHOWN_REQUEST = 300, 3000


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Request:
    """Hold one call of an effect's function."""

    fn: Callable[..., Any]
    takes_ctx: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: argument name -> fingerprint
    prints: dict[str, bytes]

    @property
    def keyed(self) -> bool:
        """Whether the target is given our idempotency key: the function takes it, so it is held to send it."""
        return self.takes_ctx

    def encoded(self) -> bytes:
        """
        Give the bytes that the intent keeps.

        :raises StepInputError: if an argument can't be kept, so that nobody could read it; nothing was sent.
        """
        prints = {name: value.hex() for name, value in self.prints.items()}
        plain = {"function": class_name(self.fn), "args": list(self.args), "kwargs": self.kwargs}  # type: ignore[arg-type]
        try:
            return encode(plain | {"prints": prints, "keyed": self.keyed}).data
        except PayloadEncodeError as error:
            named = dict(enumerate(argument_names(self.fn, self.takes_ctx, len(self.args))))
            place = re.match(r"args\[(\d+)\]", error.path)
            name = named[int(place[1])] if place else error.path
            raise StepInputError(
                f"argument '{name}' of {class_name(self.fn)}: {error}. An effect's request is kept for who must answer "  # type: ignore[arg-type]
                f"a doubt; pass plain values. Nothing was sent"
            ) from error

    def fingerprint(self, identity: Sequence[str] | Literal["key"] | None = None) -> bytes:
        """
        Hash the request; never its function, which may be renamed.

        :param identity: the arguments that count; ``None``: all.
        """
        if identity is None:
            return print_prints("request", self.prints)
        return fingerprint("request", self._chosen(identity))

    def _chosen(self, identity: Sequence[str] | Literal["key"]) -> list[tuple[str, bytes | None]]:
        return [] if identity == "key" else sorted((name, self.prints.get(name)) for name in identity)

    def call(self, ctx: Any) -> Any:
        """
        Call the function.

        :param ctx: given where the function takes one: an ``EffectContext``, or a transaction's cursor.
        """
        return author(self.fn, *((ctx,) if self.takes_ctx else ()), *self.args, **self.kwargs)

    def check_identity(self, name: str, identity: Sequence[str] | Literal["key"] | None) -> None:
        """
        Refuse an identity that names no argument.

        :raises EffectOptionError: naming it and the arguments that there are.
        """
        for argument in () if identity is None or identity == "key" else identity:
            if argument not in self.prints:
                raise EffectOptionError(
                    f"effect '{name}': identity names {argument!r}, which is no argument of "
                    f"{class_name(self.fn)}({', '.join(self.prints)})"  # type: ignore[arg-type]
                )


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """Hold a request as an intent keeps it."""

    function: str
    args: list[Any]
    kwargs: dict[str, Any]
    prints: dict[str, str]
    #: Whether the target was given our idempotency key with it.
    keyed: bool
    data: bytes

    @classmethod
    def read(cls, data: bytes) -> RecordedRequest:
        """
        Decode a request.

        :param data: what ``Request.encoded`` gave.
        """
        plain = decode(data)
        keyed = plain.get("keyed") is True
        return cls(plain["function"], plain["args"], plain["kwargs"], plain["prints"], keyed, data)

    def same(self, request: Request, identity: Sequence[str] | Literal["key"] | None) -> bool:
        """
        Compare over the arguments that count.

        :param request: today's.
        :param identity: their names; ``None``: all.
        """
        now = {name: value.hex() for name, value in request.prints.items()}
        if identity == "key":
            return True
        if identity is None:
            return now == self.prints
        return all(now.get(name) == self.prints.get(name) for name in identity)

    def difference(self, request: Request, redact: Callable[[str], str] = _as_it_is) -> str:
        """
        Say in words what differs.

        :param request: today's.
        :param redact: masks the secrets in a text, before it is cut.
        """
        then = self.named(request, tuple(self.args), self.kwargs)
        now = dict(_bound(request.fn, request.takes_ctx, request.args, request.kwargs))
        changed = [
            f"{name} {_shown(then.get(name), redact)} -> {_shown(now.get(name), redact)}"
            for name in dict.fromkeys([*self.prints, *request.prints])
            if self.prints.get(name) != (request.prints[name].hex() if name in request.prints else None)
        ]
        return "; ".join(changed)

    def named(self, request: Request | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """
        Pair recorded arguments with their names.

        :param request: today's, which gives the function; ``None``: it is not known.
        :param args: those that went by position.
        :param kwargs: the rest.
        """
        if request is None:
            return dict(zip(self.prints, args, strict=False)) | kwargs
        try:
            found = dict(_bound(request.fn, request.takes_ctx, args, kwargs))
        except TypeError:  # the function takes other arguments now
            return dict(zip(self.prints, args, strict=False)) | kwargs
        rest = [name for name, kind in _parameter_kinds(request.fn).items() if kind is Parameter.VAR_POSITIONAL]
        return found | {name: list(found[name]) for name in rest if name in found}

    def by_name(self, request: Request) -> dict[str, Any]:
        """
        Give the recorded arguments by name, rebuilt as the function's classes.

        :param request: today's, which gives the function and its argument classes.
        """
        again = self.as_request(request)
        return self.named(request, again.args, again.kwargs)

    def readable(self, request: Request | None, redact: Callable[[str], str]) -> str:
        """
        Write the recorded call for people.

        :param request: today's, which gives the function; ``None``: it is not known.
        :param redact: masks the secrets in a text, before it is cut.
        """
        named = self.named(request, tuple(self.args), self.kwargs)
        shown = ", ".join(f"{name}={_shown(value, redact, SHOWN_ARGUMENT)}" for name, value in named.items())
        return _cut(f"{self.function}({shown})", SHOWN_REQUEST)

    def as_request(self, request: Request) -> Request:
        """
        Rebuild the recorded request, to be called again with the recorded arguments.

        :param request: today's, which gives the function and its argument classes.
        """
        types = argument_types(request.fn)
        names = argument_names(request.fn, request.takes_ctx, len(self.args))
        shape = {"args": [types.get(name) for name in names], "kwargs": {name: types.get(name) for name in self.kwargs}}
        plain = decode(self.data, as_type=shape)
        prints = {name: bytes.fromhex(value) for name, value in self.prints.items()}
        return Request(request.fn, request.takes_ctx, tuple(plain["args"]), plain["kwargs"], prints)


def _shown(value: Any, redact: Callable[[str], str], most: int = SHOWN) -> str:
    try:
        text = repr(value)
    except Exception:  # the author's
        text = f"<{type(value).__name__}>"
    return _cut(redact(text), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def argument_names(fn: Callable[..., Any], takes_ctx: bool, count: int) -> list[str]:
    """
    Name positional arguments.

    :param fn: the function itself, no ``partial``.
    :param takes_ctx: whether its first parameter is ours.
    :param count: how many arguments there are.
    :return: as many names; what ``*args`` takes bears its name.
    """
    names: list[str] = []
    rest = "arg"
    for name, kind in _parameter_kinds(fn).items():
        if kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            names.append(name)
        elif kind is Parameter.VAR_POSITIONAL:
            rest = name
    names = names[1:] if takes_ctx else names
    return [*names[:count], *[rest] * (count - len(names))]


def takes_context(fn: Callable[..., Any]) -> bool:
    """
    Say whether a function's first parameter is called ``ctx``.

    :param fn: the function itself, no ``partial``.
    """
    if type(fn) is FunctionType and not fn.__dict__ and fn.__code__.co_argcount:
        return fn.__code__.co_varnames[0] == "ctx"
    return next(iter(_parameter_kinds(fn)), None) == "ctx"


def _parameter_kinds(fn: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return {name: parameter.kind for name, parameter in signature_of(fn).parameters.items()}
    except (TypeError, ValueError):
        return {}  # a builtin without a signature


def _bound(
    fn: Callable[..., Any], takes_ctx: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, Any]]:
    return bind_arguments(functools.partial(fn, **kwargs) if kwargs else fn, args, given=int(takes_ctx))


def _with_defaults(
    fn: Callable[..., Any], takes_ctx: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Write a function's defaults out: a call after doubt must not meet others than the first one did."""
    try:
        signature = signature_of(fn)
    except (TypeError, ValueError):
        return args, kwargs  # a builtin without a signature
    given = int(takes_ctx)
    bound = signature.bind(*(None,) * given, *args, **kwargs)
    bound.apply_defaults()
    return bound.args[given:], bound.kwargs


def make_request(
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    secrets: Secrets | None = None,
    leads: bool = False,
) -> Request:
    """
    Make the canonical request of a call.

    :param name: the effect's name, for messages.
    :param fn: the author's function, or a ``partial`` of it.
    :param args: the author's arguments.
    :param secrets: how secret texts count in the fingerprints.
    :param leads: whether the first parameter is ours whatever its name: a transaction's cursor.
    :raises EffectOptionError: if the function is a closure: a person must be able to read the request.
    :raises StepInputError: if an argument has no canonical form.
    :raises TypeError: if the arguments do not fit the function; nothing was sent.
    """
    kwargs: dict[str, Any] = {}
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    captured = captured_variables(fn)
    if captured:
        raise EffectOptionError(
            f"effect '{name}': its function captures {', '.join(map(repr, captured))}. A person must be able to read "
            f"the request: use a function of the module and pass what it needs by position"
        )
    takes_ctx = leads or takes_context(fn)
    named = None if kwargs else bind_plainly(fn, args, given=int(takes_ctx))
    if named is not None:
        args = tuple([value for _, value in named])
    else:
        args, kwargs = _with_defaults(fn, takes_ctx, args, kwargs)
        named = _bound(fn, takes_ctx, args, kwargs)
    prints: dict[str, bytes] = {}
    for argument, value in named:
        try:
            prints[argument] = fingerprint(value, secrets=secrets)
        except StepInputError as error:
            raise StepInputError(f"effect '{name}', argument '{argument}': {error}. Nothing was sent") from error
    return Request(fn, takes_ctx, args, kwargs, prints)
