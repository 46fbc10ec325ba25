"""
Take the parameter that aiflow gives out of a function's signature, so that Airflow never asks the author for it.

Dropping it is the one form that works with ``partial``, ``expand``, ``override``, setup and teardown, ``@task.run_if``
and ``@result``; a default instead would make ``def f(flow, doc)`` invalid.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Generator, Mapping
from typing import Any

from airflow_aiflow.exceptions import FlowOptionError

#: The name under which a durable task's function receives its flow.
FLOW = "flow"

#: The name under which an effect's function receives its context, where it is the first parameter.
CTX = "ctx"

_OURS = "__aiflow_given__"


def inject(fn: Callable[..., Any], name: str, give: Callable[[], Any]) -> Callable[..., Any]:
    """
    Wrap a function so that one parameter is given at the call and unknown to everyone else.

    :param fn: the author's function; the parameter may stand in any position, or be missing.
    :param name: the parameter.
    :param give: makes its value, at the call.
    :return: a function with the same name, documentation and source, without the parameter; the same function where it
        has none and is no async one. An async one is run through: the function that is given back is a plain one.
    :raises FlowOptionError: if the function can't be a task body.
    """
    awaits = inspect.iscoroutinefunction(fn)
    if inspect.isasyncgenfunction(fn) or (awaits and name != FLOW):
        raise FlowOptionError(
            f"{fn.__name__} is an async function, which no effect and no generator can be; write a plain 'def', or "
            f"await flow.effect(...) inside an 'async def' decorated with @task.durable"
        )
    whole = inspect.signature(fn)
    parameter = whole.parameters.get(name)
    if parameter is None and not awaits:
        return fn
    if parameter is not None and parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise FlowOptionError(f"{fn.__name__} takes {parameter}; write '{name}' without a star")
    shown = whole.replace(parameters=[one for one in whole.parameters.values() if one.name != name])

    def call(*args: Any, **kwargs: Any) -> Any:
        ours = {} if parameter is None else {name: give()}
        given = {**ours, **shown.bind(*args, **kwargs).arguments}
        ordered = {one: given[one] for one in whole.parameters if one in given}
        bound = inspect.BoundArguments(whole, ordered)
        return fn(*bound.args, **bound.kwargs)

    if inspect.isgeneratorfunction(fn):
        wrapper = _as_generator(fn, call)
    else:
        wrapper = functools.wraps(fn)(_driven(call) if awaits else call)
    wrapper.__signature__ = shown  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one: hint for one, hint in fn.__annotations__.items() if one != name}
    setattr(wrapper, _OURS, True)
    return wrapper


def _driven(call: Callable[..., Any]) -> Callable[..., Any]:
    """Run the body on an event loop of ours: the flow's deadlines and signals have to know that loop."""

    def drive(*args: Any, **kwargs: Any) -> Any:
        from airflow_aiflow.runtime.async_flow import run_async

        return run_async(lambda _flow: call(*args, **kwargs))

    return drive


def _as_generator(fn: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """Stay a generator function: Airflow runs those through, for the metadata of assets that they yield."""

    @functools.wraps(fn)
    def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from call(*args, **kwargs))

    return generate


def bare(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Give the author's own function back."""
    while getattr(fn, _OURS, False):
        fn = fn.__wrapped__  # type: ignore[attr-defined]
    return fn


def returns_mapping(fn: Callable[..., Any]) -> bool:
    """
    Say whether the return annotation is a mapping, whose keys Airflow then pushes as XComs of their own.

    Airflow reads the annotation in the namespace of the function that it is given, which for a wrapper is the wrong
    one; so it is read here.

    :param fn: the author's function.
    """
    if "return" not in fn.__annotations__:
        return False

    def only_return() -> None: ...

    only_return.__annotations__ = {"return": fn.__annotations__["return"]}
    try:
        found = typing.get_type_hints(only_return, getattr(fn, "__globals__", {})).get("return")
    except (NameError, TypeError):  # a name that exists for the type checker alone
        return False
    kind = typing.get_origin(found) or found
    return isinstance(kind, type) and issubclass(kind, Mapping)
