"""
Stand between an agent of pydantic-ai and its model and tools: the parts that pydantic-ai itself offers for that.

A capability that is added to one run wraps, innermost, whichever model serves a request and all tools at once, however
they came to the agent: as a list, by a decorator, in a toolset, from a capability. Nothing is patched, and the agent is
left as it was.

Imported when an agent runs, never by a DAG file.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from pydantic_ai import RunContext  # noqa: TID253  # imported where an agent runs alone
from pydantic_ai.capabilities import AbstractCapability  # noqa: TID253
from pydantic_ai.capabilities.abstract import CapabilityOrdering  # noqa: TID253
from pydantic_ai.messages import ModelMessage, ModelResponse  # noqa: TID253
from pydantic_ai.models import (  # noqa: TID253
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.wrapper import WrapperModel  # noqa: TID253
from pydantic_ai.settings import ModelSettings  # noqa: TID253
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset  # noqa: TID253
from pydantic_ai.toolsets.abstract import ToolsetTool  # noqa: TID253

from airflow_aiflow.llm.agent_request import AgentRequest


class Recorder(Protocol):
    """Record what an agent's run asks and calls."""

    async def request(self, request: AgentRequest) -> ModelResponse:
        """Replay a request to the model, or make it."""
        ...

    async def tool(
        self,
        name: str,
        arguments: dict[str, Any],
        call_id: str | None,
        go: Callable[[], Coroutine[Any, Any, Any]],
        *,
        recorded: bool,
    ) -> Any:
        """
        Replay a tool call, or make it.

        :param recorded: whether the tool records itself.
        """
        ...


class Recording(AbstractCapability[Any]):
    """
    Have a run's requests and tool calls recorded.

    :param recorder: who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def get_ordering(self) -> CapabilityOrdering:
        """Be where the model and the tools are: what others change before is part of the request."""
        return CapabilityOrdering(position="innermost")

    def get_wrapper_model(self, model: Model) -> Model:
        """Wrap the model that serves a request."""
        return RecordedModel(model, self._recorder)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Wrap all tools at once."""
        return RecordedTools(toolset, self._recorder)


class RecordedModel(WrapperModel):
    """
    Be a model whose answers are recorded before the agent sees them.

    :param wrapped: the model.
    :param recorder: who records.
    """

    def __init__(self, wrapped: Model, recorder: Recorder) -> None:
        super().__init__(wrapped)
        self._recorder = recorder

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Replay the request, or make it."""
        made = AgentRequest(self.wrapped, messages, model_settings, model_request_parameters, streamed=False)
        return await self._recorder.request(made)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Replay the request, or make it; its events are told once the answer is whole and recorded."""
        made = AgentRequest(self.wrapped, messages, model_settings, model_request_parameters, streamed=True)
        response = await self._recorder.request(made)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


class RecordedTools(WrapperToolset[Any]):
    """
    Be all tools of a run, each call of which is recorded.

    :param wrapped: the tools.
    :param recorder: who records.
    """

    def __init__(self, wrapped: AbstractToolset[Any], recorder: Recorder) -> None:
        super().__init__(wrapped)
        self._recorder = recorder

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Replay the call, or make it."""
        recorded = _records_itself(tool)
        called = _untimed(tool) if recorded else tool

        async def go() -> Any:
            return await self.wrapped.call_tool(name, tool_args, ctx, called)

        return await self._recorder.tool(name, tool_args, ctx.tool_call_id, go, recorded=recorded)

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Be the wrapper of the run's own tools."""
        return RecordedTools(await self.wrapped.for_run(ctx), self._recorder)

    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Be the wrapper of the step's own tools."""
        return RecordedTools(await self.wrapped.for_run_step(ctx), self._recorder)

    def visit_and_replace(
        self, visitor: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
    ) -> AbstractToolset[Any]:
        """Be the wrapper of what a visitor makes of the tools."""
        return RecordedTools(self.wrapped.visit_and_replace(visitor), self._recorder)


def _untimed(tool: Any) -> Any:
    """
    Take pydantic-ai's time limit from a marked tool, which has its own.

    Over that limit the call is left to itself, and the model is told that it failed while it is being done.
    """
    inner = getattr(tool, "source_tool", None)
    below = {} if inner is None else {"source_tool": _untimed(inner)}
    # No limit of its own would be its toolset's.
    return replace(tool, tool_def=replace(tool.tool_def, timeout=math.inf), **below)


def _records_itself(tool: Any) -> bool:
    """Say whether a tool is a function decorated with ``@effect`` or ``@step``, found below what combines tools."""
    while (source := getattr(tool, "source_tool", None)) is not None:
        tool = source
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return getattr(getattr(schema, "function", None), "__aiflow_recorded__", False) is True
