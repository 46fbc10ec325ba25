"""
What an author of an async task holds: the same calls as ``Flow``, awaitable.

There is no second implementation: each call is one of the sync flow's, in a thread of its own. Where the author's
function is a coroutine function, it runs on the task's event loop, inside the unit of the call.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, cast, overload

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path
    from typing import IO

    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.messages import UserContent
    from pydantic_ai.usage import UsageLimits

    from airflow_aiflow.durable.artifact import ArtifactRef
    from airflow_aiflow.durable.execution import Lease
    from airflow_aiflow.durable.inbox import Answer
    from airflow_aiflow.durable.policy import Duration
    from airflow_aiflow.runtime.coroutines import Driver
    from airflow_aiflow.runtime.flow import Flow
    from airflow_aiflow.runtime.replay import Spent
    from airflow_aiflow.runtime.session import Session

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])


def _remembered(method: Method) -> Method:
    """Note a call until it begins: without ``await`` nothing is done, and Python only warns."""

    @functools.wraps(method)
    def call(self: AsyncFlow, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        async def begin() -> Any:
            del self._waiting[mark]
            return await method(self, *args, **kwargs)

        mark = object()
        named = repr(args[0]) if args and isinstance(args[0], str) else "..."
        self._waiting[mark] = (f"flow.{method.__name__}({named})", made := begin())
        return made

    return cast("Method", call)


class AsyncFlow:
    """
    Be one attempt at work, for an ``async def`` task. Given to it as its argument ``flow``; never made by an author.

    :param flow: the same attempt, for code that does not wait.
    :param driver: carries calls into threads and coroutines back.
    """

    def __init__(self, flow: Flow, driver: Driver) -> None:
        self._flow = flow
        self._driver = driver
        #: Calls that have not begun: what is written in a message, and the coroutine.
        self._waiting: dict[object, tuple[str, Coroutine[Any, Any, Any]]] = {}

    def __aiflow_fingerprint__(self) -> str:
        """Count as a constant, as the sync flow does."""
        return "flow"

    @classmethod
    def from_context(cls) -> NoReturn:
        """
        Refuse: a plain async task is no durable one.

        :raises FlowError: always, with the way out.
        """
        from airflow_aiflow.exceptions import FlowError

        raise FlowError(
            "AsyncFlow.from_context() does not exist: decorate the async function with @task.durable, or use "
            "`with Flow.from_context() as flow:` in a plain 'def'"
        )

    @property
    def _session(self) -> Session:
        return self._flow._session

    @property
    def attempt(self) -> int:
        """The running number of this attempt, from 1."""
        return self._flow.attempt

    @property
    def lease(self) -> Lease:
        """The lease that this attempt holds."""
        return self._flow.lease

    @property
    def generation(self) -> int:
        """How many fresh starts people asked for, from 1."""
        return self._flow.generation

    @property
    def resumed(self) -> bool:
        """Whether anything was recorded when this attempt began."""
        return self._flow.resumed

    @property
    def spent(self) -> Spent:
        """What model calls of this generation cost, over all its attempts."""
        return self._flow.spent

    def _refuse_unawaited(self) -> None:
        """
        Refuse to end well where a call was made and never awaited.

        :raises FlowError: naming the calls; nothing was done for them.
        """
        from inspect import CORO_CREATED, getcoroutinestate

        from airflow_aiflow.exceptions import FlowError

        never = [(shown, made) for shown, made in self._waiting.values() if getcoroutinestate(made) == CORO_CREATED]
        for _, made in never:
            made.close()
        if never:
            raise FlowError(
                f"{', '.join(shown for shown, _ in never)}: called without await, so that nothing was done for it; "
                f"write `await {never[0][0]}`"
            )

    @overload
    async def step(self, name: str, fn: Callable[[*Ts], Awaitable[R]], *args: *Ts, **options: Any) -> R: ...

    @overload
    async def step(self, name: str, fn: Callable[[*Ts], R], *args: *Ts, **options: Any) -> R: ...

    @_remembered  # type: ignore[misc]
    async def step(self, name: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """
        Compute something once; see ``Flow.step``.

        :param fn: a coroutine function, or a plain one, which then runs in a thread.
        """
        return await self._driver.call(lambda: self._flow.step(name, fn, *args, **options))

    @_remembered
    async def llm(self, name: str, prompt: str, **options: Any) -> Any:
        """Ask a model once; see ``Flow.llm``."""
        return await self._driver.call(lambda: self._flow.llm(name, prompt, **options))

    @_remembered
    async def llm_map(self, name: str, prompts: Iterable[str], **options: Any) -> list[Any]:
        """Ask a model once for each prompt; see ``Flow.llm_map``."""
        return await self._driver.call(lambda: self._flow.llm_map(name, prompts, **options))

    @_remembered
    async def llm_batch(self, name: str, prompts: Iterable[str] | ArtifactRef, **options: Any) -> ArtifactRef:
        """Hand prompts to a provider's batch API once; see ``Flow.llm_batch``."""
        return await self._driver.call(lambda: self._flow.llm_batch(name, prompts, **options))

    @_remembered
    async def embed(self, name: str, texts: Iterable[str] | ArtifactRef, **options: Any) -> ArtifactRef:
        """Embed texts, many to a call; see ``Flow.embed``."""
        return await self._driver.call(lambda: self._flow.embed(name, texts, **options))

    @_remembered
    async def agent(
        self,
        name: str,
        agent: AbstractAgent[Any, R],
        prompt: str | Sequence[UserContent] | None,
        *,
        deps: Any = None,
        usage_limits: UsageLimits | None = None,
        rate_limit: str | None = None,
        reuse: Duration | None = None,
    ) -> R:
        """Run an agent on the task's event loop; see ``Flow.agent``."""
        from airflow_aiflow.runtime.agents import run_agent_async

        options = {"deps": deps, "usage_limits": usage_limits, "rate_limit": rate_limit, "reuse": reuse}
        result = await run_agent_async(self._flow, self._driver, name, agent, prompt, **options)
        output: R = result.output
        return output

    @_remembered
    async def effect(self, name: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """
        Change the outside world: never repeated silently, never dropped silently; see ``Flow.effect``.

        :param fn: a coroutine function, or a plain one; gets an ``EffectContext`` first where its first parameter is
            called ``ctx``.
        """
        return await self._driver.call(lambda: self._flow.effect(name, fn, *args, **options))

    @_remembered
    async def transaction(self, name: str, fn: Callable[..., R], *args: Any, **options: Any) -> R:
        """
        Change a PostgreSQL database once; see ``Flow.transaction``.

        :param fn: a plain function, for its cursor is no async one.
        :raises TypeError: if it is a coroutine function.
        """
        from inspect import iscoroutinefunction

        if iscoroutinefunction(fn):
            raise TypeError(
                f"flow.transaction({name!r}, ...): {fn.__name__} is a coroutine function, and its cursor is no async "
                f"one; write a plain 'def', which runs in a thread. Nothing ran"
            )
        return await self._driver.call(lambda: self._flow.transaction(name, fn, *args, **options))

    @overload
    async def map(
        self, name: str, fn: Callable[[T, *Ts], Awaitable[R]], items: Iterable[T], *args: *Ts, **options: Any
    ) -> list[R]: ...

    @overload
    async def map(
        self, name: str, fn: Callable[[T, *Ts], R], items: Iterable[T], *args: *Ts, **options: Any
    ) -> list[R]: ...

    @_remembered  # type: ignore[misc]
    async def map(
        self, name: str, fn: Callable[..., Any], items: Iterable[Any], *args: Any, **options: Any
    ) -> list[Any]:
        """
        Run a function over many items, several at a time; see ``Flow.map``.

        :param fn: a coroutine function, or a plain one.
        """
        return await self._driver.call(lambda: self._flow.map(name, fn, items, *args, **options))

    @_remembered
    async def job(self, name: str, submit: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """
        Run a long job somewhere else; see ``Flow.job``.

        :param submit: it, and what is given as ``poll``, ``result``, ``find`` and ``cancel``, may be a coroutine
            function or a plain one.
        """
        return await self._driver.call(lambda: self._flow.job(name, submit, *args, **options))

    @_remembered
    async def sleep(self, name: str, delay: Duration) -> None:
        """Wait once, over all attempts of this generation; see ``Flow.sleep``."""
        await self._driver.call(lambda: self._flow.sleep(name, delay))

    @_remembered
    async def ask(
        self,
        name: str,
        subject: str,
        *,
        body: str = "",
        options: Sequence[str] = ("Approve", "Reject"),
        assigned_users: Sequence[str] = (),
        timeout: Duration = 86_400.0,  # noqa: ASYNC109  # of the question, over all attempts
    ) -> Answer:
        """Ask a person, once; see ``Flow.ask``."""
        return await self._driver.call(
            lambda: self._flow.ask(
                name, subject, body=body, options=options, assigned_users=assigned_users, timeout=timeout
            )
        )

    @_remembered
    async def emit(self, kind: str, /, **data: Any) -> None:
        """Write an event that others can follow; see ``Flow.emit``."""
        await self._driver.call(lambda: self._flow.emit(kind, **data))

    @_remembered
    async def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Say how far the task is; see ``Flow.progress``."""
        await self._driver.call(lambda: self._flow.progress(done, total, message))

    @_remembered
    async def save(
        self, value: str | bytes | Path | IO[bytes] | Any, *, name: str | None = None, media_type: str | None = None
    ) -> ArtifactRef:
        """Store bytes in the artifact store, by content hash; see ``Flow.save``."""
        return await self._driver.call(lambda: self._flow.save(value, name=name, media_type=media_type))

    @_remembered
    async def load(self, ref: ArtifactRef) -> Any:
        """Read an artifact back; see ``Flow.load``."""
        return await self._driver.call(lambda: self._flow.load(ref))


def run_async(body: Callable[[AsyncFlow], Awaitable[R]]) -> R:
    """
    Run an async task's body under the flow that is open here, on an event loop in this thread.

    :param body: makes the author's coroutine; ``current_flow()`` gives it the same flow.
    """
    from airflow_aiflow.runtime.coroutines import Driver, run_body
    from airflow_aiflow.runtime.current import current_flow, use_flow

    flow = current_flow()
    session = flow._session
    made: list[AsyncFlow] = []

    def make_driver(loop: asyncio.AbstractEventLoop) -> Driver:
        driver = Driver(
            loop,
            given_up=lambda: session.gate.overdue,
            on_loop=lambda: use_flow(made[0]),
            in_core=lambda: use_flow(flow),
        )
        made.append(AsyncFlow(flow, driver))
        return driver

    async def begin(_driver: Driver) -> R:
        import asyncio

        use_flow(made[0])
        value = await body(made[0])
        await asyncio.sleep(0)  # what was made a task of the loop's begins now
        made[0]._refuse_unawaited()
        return value

    return run_body(begin, make_driver, session.interrupts.divert)
