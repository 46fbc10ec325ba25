"""
``flow.agent``: run an agent of pydantic-ai so that each request to its model and each tool call is recorded.

The run itself is not recorded. A resume runs through it again, and whatever is recorded replays, by meaning: a request
counts by the conversation that it continues, a tool call by the request that asked for it and its place in the answer.
So a changed prompt runs anew from the first request that differs, and tools that run side by side keep their results,
in whichever order they end. A tool that is decorated with ``@effect`` or ``@step`` is recorded as that alone.

Not covered: functions that make the output (and validators of it) run again on a replay, as do the hooks of other
capabilities; the list of an MCP server's tools is read anew; an agent that a tool runs by itself, without
``flow.agent``, is recorded as part of that tool.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_aiflow.durable.policy import check_name
from airflow_aiflow.exceptions import AiflowConfigError, FlowClosedError, FlowSignal
from airflow_aiflow.runtime.agent_run import AgentRun
from airflow_aiflow.runtime.async_flow import AsyncFlow
from airflow_aiflow.runtime.coroutines import Driver, run_body
from airflow_aiflow.runtime.current import current_unit, flow_call, inside_unit, use_flow
from airflow_aiflow.runtime.reuse import read_age

if TYPE_CHECKING:
    from pydantic_ai.agent import AbstractAgent, AgentRunResult

    from airflow_aiflow.runtime.flow import Flow

R = TypeVar("R")


def run_agent(
    flow: Flow, name: str, agent: AbstractAgent[Any, Any], prompt: Any, **options: Any
) -> AgentRunResult[Any]:
    """
    Run an agent for code that does not wait: on an event loop of its own, in this thread.

    :param flow: the flow of the attempt.
    :param name: of the run; part of where its records are.
    :param agent: the author's.
    :param prompt: what is asked.
    :param options: handed on to ``agent.run``; and ``rate_limit``, the limit that its requests count against, and
        ``reuse``, how old an answer of another run may be.
    :raises TypeError: where an event loop runs already, or for what is no agent; nothing ran.
    """
    _check(name, agent)
    if asyncio._get_running_loop() is not None:
        raise TypeError(
            f"flow.agent({name!r}, ...): an event loop runs here already; make the task 'async def' and await "
            f"flow.agent(...). Nothing ran"
        )
    return _on_own_loop(flow, lambda driver: run_agent_async(flow, driver, name, agent, prompt, **options))


async def run_agent_async(
    flow: Flow, driver: Driver, name: str, agent: AbstractAgent[Any, Any], prompt: Any, **options: Any
) -> AgentRunResult[Any]:
    """
    Run an agent on the loop that runs here.

    :param flow: the flow of the attempt, for code that does not wait.
    :param driver: of the loop.
    :param options: see ``run_agent``.
    """
    from airflow_aiflow.runtime.agent_hooks import Recording

    _check(name, agent)
    session, rate_limit, reuse = flow._session, options.pop("rate_limit", None), read_age(options.pop("reuse", None))
    capabilities: Sequence[Any] = options.pop("capabilities", None) or ()
    outer = current_unit()
    chosen = await driver.call(lambda: _begin(flow, agent, options))
    with inside_unit(name, "agent") as unit:
        run = AgentRun(session, flow._models, driver, name, unit, rate_limit, reuse)
        hooks = [*capabilities, Recording(run)]
        try:
            result = await agent.run(prompt, capabilities=hooks, infer_name=False, **chosen, **options)
            if unit.cut:
                raise session.gate.signal or FlowClosedError("this flow has ended in the middle of an agent's run")
        except BaseException as error:
            await run.failed(error)
            signal = session.gate.signal
            outer.cut |= signal is not None or unit.cut
            if isinstance(error, asyncio.CancelledError | FlowSignal) or signal is None:
                raise
            # Whatever pydantic-ai made of the signal that ended a tool, or a request, the attempt ends as it says.
            raise signal from error
    run.ended(outer)
    return result


def _check(name: str, agent: object) -> None:
    check_name("agent", name)
    try:
        from pydantic_ai.agent import AbstractAgent
    except ImportError as error:
        raise AiflowConfigError(f"agents need the extra: pip install 'airflow-aiflow[llm]' ({error})") from error
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"flow.agent({name!r}, ...) takes an agent of pydantic-ai, got {type(agent).__name__}")


def _begin(flow: Flow, agent: AbstractAgent[Any, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Refuse a start where there is none any more, and give the deployment's model to an agent that has none."""
    services = flow._session.services
    with flow_call(flow._session):
        if options.get("model") is not None or agent.model is not None:
            return {}
        from airflow_aiflow.llm.agent_request import default_model

        if services.models is None:
            raise AiflowConfigError("no models here: give the agent a model, or install airflow-aiflow[llm]")
        return {"model": default_model(services.settings.default_llm_conn_id)}


def _on_own_loop(flow: Flow, body: Callable[[Driver], Coroutine[Any, Any, R]]) -> R:
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

    def begin(driver: Driver) -> Awaitable[R]:
        use_flow(made[0])
        return body(driver)

    # Signals reach the main thread alone.
    in_main = threading.current_thread() is threading.main_thread()
    return run_body(begin, make_driver, session.interrupts.divert if in_main else lambda _post: None)
