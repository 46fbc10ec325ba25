"""
``@step`` and ``@effect`` for plain functions: recorded wherever a durable task calls them, also as an agent's tools.

The function's name is the name of the step or effect: renaming it makes another one. A decorated function keeps its
signature, its documentation and its annotations, from which agents make a tool's schema; ``ctx``, which aiflow gives,
is in none of them.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import typing
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from airflow_aiflow.decorators.key_template import KeyTemplate
from airflow_aiflow.durable.policy import EffectOptions, effect_options, seconds
from airflow_aiflow.exceptions import EffectOptionError, FlowOptionError
from airflow_aiflow.runtime.current import current_flow, use_flow
from airflow_aiflow.runtime.unawaited import noticed

if TYPE_CHECKING:
    from airflow_aiflow.decorators.effect_words import EffectWords
    from airflow_aiflow.durable.effect_context import EffectContext
    from airflow_aiflow.durable.policy import Duration

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

#: The name under which an effect's function receives its context, where it is the first parameter.
CTX = "ctx"


class Recorded(Protocol[P, R_co]):
    """Be a function whose calls inside a durable task are recorded."""

    __name__: str
    __doc__: str | None

    @property
    def fn(self) -> Callable[..., R_co]:
        """The bare function: nothing is recorded, nothing is deduplicated."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """
        Replay the call, or make it.

        :raises NoFlowError: outside a durable task; nothing ran.
        """
        ...


class EffectDecorator(Protocol):
    """Turn a function into an effect, its ``ctx`` taken out of the signature."""

    @overload
    def __call__(self, fn: Callable[Concatenate[EffectContext, P], R], /) -> Recorded[P, R]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> Recorded[P, R]: ...


@overload
def step(fn: Callable[P, R], /) -> Recorded[P, R]: ...


@overload
def step(
    *, version: str | int | None = None, timeout: Duration | None = None, retries: int = 0
) -> Callable[[Callable[P, R]], Recorded[P, R]]: ...


def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """
    Record a function's results: inside a durable task the same arguments give the same result, computed once.

    :param fn: the author's function, where the decorator stands without brackets.
    :param version: changes the fingerprint, where the code changed and the arguments did not.
    :param timeout: seconds, or a ``timedelta``, for one try.
    :param retries: tries after the first, inside one attempt of the task.
    :raises FlowOptionError: if an option is wrong.
    """
    unknown = set(options) - {"version", "timeout", "retries"}
    if unknown:
        raise TypeError(f"step() got an unexpected keyword {min(unknown)!r}")
    if options.get("timeout") is not None:
        seconds(options["timeout"], "timeout")

    def decorate(fn: Callable[..., Any]) -> Any:
        _refuse_unfit("step", fn)
        shown = inspect.signature(fn)

        def call(flow: Any, *args: Any, **kwargs: Any) -> Any:
            bound = shown.bind(*args, **kwargs)
            return flow.step(fn.__name__, _bound(fn, bound), *bound.args, **options)

        return _dressed(call, fn, shown)

    return decorate if fn is None else decorate(fn)


def effect(*, key: str, **options: typing.Unpack[EffectWords]) -> EffectDecorator:
    """
    Make a function change the outside world once for its key, wherever a durable task or an agent's tool call calls it.

    :param key: a template over the function's own arguments, such as ``"refund/{order_id}"``; name in it what is done
        once, and nothing that the function does not act on: a model that may choose such an argument chooses the key.
    :param options: of an effect.
    :raises EffectOptionError: if the key names no argument, or an option is wrong.
    """
    effect_options(_known(dict(options)), EffectOptions())

    def decorate(fn: Callable[..., Any]) -> Any:
        _refuse_unfit("effect", fn)
        whole = inspect.signature(fn)
        parameters = list(whole.parameters.values())
        takes_ctx = bool(parameters) and parameters[0].name == CTX
        shown = whole.replace(parameters=parameters[1:]) if takes_ctx else whole
        template = _template(fn.__name__, key, shown, options.get("scope"))
        if options.get("on_in_doubt") == "retry" and not takes_ctx:
            raise EffectOptionError(
                f"effect '{fn.__name__}': on_in_doubt='retry' calls the target again, so the target must get the "
                f"idempotency key: make the function's first parameter `ctx` and send ctx.idempotency_key"
            )

        def call(flow: Any, *args: Any, **kwargs: Any) -> Any:
            bound = shown.bind(*args, **kwargs)
            given = inspect.BoundArguments(shown, dict(bound.arguments))
            given.apply_defaults()
            made = template.key(given.arguments)
            return flow.effect(fn.__name__, _bound(fn, bound), *bound.args, key=made, **options)

        return _dressed(call, fn, shown)

    return typing.cast("EffectDecorator", decorate)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    from airflow_aiflow.durable.policy import EFFECT_OPTION_NAMES

    unknown = [name for name in options if name not in EFFECT_OPTION_NAMES]
    if unknown:
        raise TypeError(f"effect() got an unexpected keyword {unknown[0]!r}; its keywords are options of an effect")
    return options


def _template(name: str, key: object, shown: inspect.Signature, scope: str | None) -> KeyTemplate:
    names = [one.name for one in shown.parameters.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    template = KeyTemplate(name, key, names)
    if not template.fields and scope in (None, "dag"):
        warnings.warn(
            f"effect '{name}': the key {key!r} names no argument and scope is 'dag', so this will happen once for "
            f"ever, not once a call; put an argument into the key, or give scope='run'",
            UserWarning,
            stacklevel=3,
        )
    return template


def _refuse_unfit(decorator: str, fn: object) -> None:
    """Refuse what has no name, or whose call would not run its body."""
    if not inspect.isfunction(fn):
        raise FlowOptionError(f"@{decorator} takes a function, got {fn!r}; options go by keyword")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise FlowOptionError(
            f"@{decorator}: {fn.__name__} is a generator, whose call would not run its body; return a list instead"
        )


def _bound(fn: Callable[..., Any], bound: inspect.BoundArguments) -> Callable[..., Any]:
    return functools.partial(fn, **bound.kwargs) if bound.kwargs else fn


def _dressed(call: Callable[..., Any], fn: Callable[..., Any], shown: inspect.Signature) -> Any:
    """Make the call on the flow that is at work look like the author's function, without what aiflow gives."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        return _on_core(fn.__name__, call, args, kwargs)

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        flow: Any = current_flow()
        if not _is_async(flow):
            raise TypeError(
                f"{fn.__name__} is a coroutine function; make the task 'async def' and await {fn.__name__}(...). "
                f"Nothing ran"
            )
        return await call(flow, *args, **kwargs)

    if inspect.iscoroutinefunction(fn):
        noticed(awaited)
    dressed: Any = functools.wraps(fn)(awaited if inspect.iscoroutinefunction(fn) else plain)
    dressed.__signature__ = shown
    dressed.__annotations__ = {
        name: hint for name, hint in fn.__annotations__.items() if name == "return" or name in shown.parameters
    }
    dressed.fn = fn
    # An agent's tool call needs no record of its own where the function is recorded.
    dressed.__aiflow_recorded__ = True
    return dressed


def _on_core(name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a plain function's call; in an async task only off the event loop, where agents run plain tools too."""
    flow: Any = current_flow()
    if not _is_async(flow):
        return call(flow, *args, **kwargs)
    if asyncio._get_running_loop() is not None:
        raise TypeError(
            f"{name} is a plain function, which would hold the event loop of this async task: "
            f"await asyncio.to_thread({name}, ...), or write it 'async def'. Nothing ran"
        )

    def in_core() -> Any:
        use_flow(flow._flow)
        return call(flow._flow, *args, **kwargs)

    return contextvars.copy_context().run(in_core)


def _is_async(flow: object) -> bool:
    from airflow_aiflow.runtime.async_flow import AsyncFlow

    return isinstance(flow, AsyncFlow)
