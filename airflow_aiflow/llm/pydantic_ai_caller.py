"""
Make model calls through pydantic-ai and common-ai's connections.

Invariants: one request on the network for each connection asked (and one more for each output retry); the deadline is
over the whole call, so neither a silent server nor one that sends a byte a second can exceed it; the next connection is
asked only where the one before surely did not serve the call; nothing of prompts or answers is logged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterable, Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_aiflow.exceptions import (
    FlowOptionError,
    ModelError,
    ModelIncompleteError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.llm.connection import Chain, Route, open_chain, settings_for
from airflow_aiflow.llm.embedding import EmbedRequest
from airflow_aiflow.llm.failure import cleaner, translate
from airflow_aiflow.llm.loop_thread import LoopBusyError, LoopThread
from airflow_aiflow.llm.pydantic_ai_embedding import ask_for_vectors
from airflow_aiflow.llm.usage import price_of, usage_of

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.messages import ModelMessage, ModelResponse

log = logging.getLogger(__name__)

#: Beyond the call's own deadline, before the waiting thread gives up on the loop: an author's validator may hold it.
LOOP_GRACE = 5.0

#: Seconds to build clients or to close them; nothing is sent meanwhile.
SETUP_SECONDS = 30.0

#: The client's loggers that write a line for every request: a task that asks a thousand times shows one line a step.
TALKATIVE = ("httpx", "httpx2")

#: What a model says when it is done; anything else is worth a line.
DONE = frozenset({"stop", "tool_call", None})


_lock = threading.Lock()
_worker: _Worker | None = None

#: In a forked child, its parent's: never touched again, nor collected, since loop and sockets are the parent's too.
_of_the_parent: list[_Worker | None] = []


def _start_anew() -> None:
    global _lock, _worker
    _of_the_parent.append(_worker)
    _lock, _worker = threading.Lock(), None


os.register_at_fork(after_in_child=_start_anew)


class PydanticAICaller:
    """Make calls for any number of threads. All callers of a process share its clients, so making one is cheap."""

    def call(self, request: LlmRequest) -> LlmAnswer:
        """
        Ask once. May be ended from the main thread by a signal that raises; the request is then cancelled.

        :param request: what to ask, and how.
        :raises AiflowConfigError: if a connection is missing or can't be used.
        :raises ModelError: see ``ModelCaller.call``.
        """
        return _worker_of_this_process().call(request)

    def embed(self, request: EmbedRequest) -> LlmAnswer:
        """
        Ask once for the vectors of a batch of texts; may be ended as ``call``.

        :param request: the texts.
        :raises AiflowConfigError: if the connection is missing or can't be used.
        :raises ModelError: see ``ModelCaller.call``.
        """
        return _worker_of_this_process().embed(request)

    def quote(self, request: LlmRequest, tokens_in: int, tokens_out: int) -> Decimal | None:
        """
        Say what a call would cost, of the dearest of the request's connections.

        :raises AiflowConfigError: if a connection is missing or can't be used.
        """
        return _worker_of_this_process().quote(request, tokens_in, tokens_out)

    def close(self) -> None:
        """Close the clients of this process and end their thread; calls in flight are cancelled."""
        global _worker
        with _lock:
            worker, _worker = _worker, None
        if worker is not None:
            worker.close()


def _worker_of_this_process() -> _Worker:
    global _worker
    with _lock:
        if _worker is None:
            _worker = _Worker()
        return _worker


class _Worker:
    """Hold the loop, and the models by connection, of one process."""

    def __init__(self) -> None:
        self._loop = LoopThread("aiflow-models")
        self._opened = AsyncExitStack()
        self._chains: dict[tuple[object, ...], Chain] = {}
        self._opening = threading.Lock()
        for name in TALKATIVE:
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:  # else the deployment has said what it wants
                logger.setLevel(logging.WARNING)

    def call(self, request: LlmRequest) -> LlmAnswer:
        chain = self._chain(request)
        asking = _Asking(request, _agent(chain, request))
        return self._await(request, chain, lambda: asking.ask(chain.routes))

    def embed(self, request: EmbedRequest) -> LlmAnswer:
        chain = self._chain(request)
        return self._await(request, chain, lambda: ask_for_vectors(chain.routes[0], request))

    def _await(self, request: LlmRequest, chain: Chain, ask: Callable[[], Coroutine[Any, Any, LlmAnswer]]) -> LlmAnswer:
        try:
            return self._loop.run(ask, request.timeout + LOOP_GRACE)
        except ModelRequestError as error:
            if error.status_code in (401, 403):  # the key may have been changed meanwhile: read it again next time
                self._chains.pop(_chain_key(request), None)
            raise
        except LoopBusyError as error:
            raise ModelTimeoutError(
                f"{chain.routes[0]}: the call did not end {LOOP_GRACE:g} s after its {request.timeout:g} s; it may "
                f"have been billed. The vendor's client can't be interrupted, or something, such as a validator of the "
                f"output type, holds the thread of all model calls"
            ) from error
        except CancelledError as error:
            raise ModelIncompleteError(
                f"the answer of {chain.routes[0]} was not waited for: the model caller was closed meanwhile"
            ) from error

    def quote(self, request: LlmRequest, tokens_in: int, tokens_out: int) -> Decimal | None:
        routes = self._chain(request).routes
        prices = [price_of(route.model, tokens_in, tokens_out) for route in routes]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None

    def _chain(self, request: LlmRequest) -> Chain:
        key = _chain_key(request)
        with self._opening:
            chain = self._chains.get(key)
            if chain is None:
                chain = open_chain(request)
                self._loop.run(lambda: self._enter(chain), SETUP_SECONDS)
                self._chains[key] = chain
            return chain

    async def _enter(self, chain: Chain) -> None:
        for route in chain.routes:
            await self._opened.enter_async_context(route.model)

    def close(self) -> None:
        try:
            self._loop.run(self._opened.aclose, SETUP_SECONDS)
        finally:
            self._loop.close()


def _chain_key(request: LlmRequest) -> tuple[object, ...]:
    return (request.llm_conn_id, request.model_id, request.fallback_conn_ids)


def _agent(chain: Chain, request: LlmRequest) -> Agent[object, Any]:
    from pydantic_ai.exceptions import UserError

    try:
        return chain.hook.create_agent(
            output_type=request.output_type, instructions=request.system_prompt, retries=request.output_retries
        )
    except UserError as error:
        raise FlowOptionError(f"pydantic-ai refuses this call: {error}") from error


class _Asking:
    """Be one call on its way from connection to connection."""

    def __init__(self, request: LlmRequest, agent: Agent[object, Any]) -> None:
        self._request = request
        self._agent = agent

    async def ask(self, routes: tuple[Route, ...]) -> LlmAnswer:
        deadline = asyncio.get_running_loop().time() + self._request.timeout
        failed: list[ModelUnavailableError | ModelRequestError] = []
        for route in routes:
            try:
                return await self._ask_one(route, deadline)
            except (ModelUnavailableError, ModelRequestError) as error:
                failed.append(error)
                if route is not routes[-1]:
                    log.warning("%s; asking the next connection", error)
        raise _deciding(failed)

    async def _ask_one(self, route: Route, deadline: float) -> LlmAnswer:
        from pydantic_ai import capture_run_messages

        limit = asyncio.timeout_at(deadline)
        with capture_run_messages() as messages:
            try:
                async with limit:
                    result = await self._run(route)
                _check_whole(result.response, route, streamed=self._request.stream)
            except ModelError:
                raise
            except Exception as error:
                if limit.expired():
                    raise ModelTimeoutError(
                        f"{route} did not answer whole within {self._request.timeout:g} s; it may have been billed"
                    ) from error
                answers = _responses(messages)
                usage = usage_of(answers, model=route.model.model_name) if answers else None
                ours = translate(error, str(route), cleaner(self._request), usage)
                if ours is None:
                    error.add_note(f"aiflow: in a call of {route}")
                    raise
                raise ours from error
        return _answer(result, route)

    async def _run(self, route: Route) -> AgentRunResult[Any]:
        request = self._request
        options: dict[str, Any] = {
            "model": route.model,
            # Longer than the deadline, which is to be what ends a silent server.
            "model_settings": settings_for(route.model, request, read_timeout=request.timeout + LOOP_GRACE),
            "event_stream_handler": self._read_events if request.stream else None,
            **request.run_options,
        }
        result: AgentRunResult[Any] = await self._agent.run(request.prompt, **options)
        return result

    async def _read_events(self, _context: object, events: AsyncIterable[Any]) -> None:
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

        async for event in events:
            text = ""
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                text = event.part.content
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
            if text and self._request.on_text is not None:
                self._request.on_text(text)


def _deciding(failed: list[ModelUnavailableError | ModelRequestError]) -> ModelError:
    """Choose what to raise when no connection served the call: what a later try can mend goes first."""
    passing = [error for error in failed if isinstance(error, ModelUnavailableError)]
    chosen = (passing or failed)[0]
    for error in failed:
        if error is not chosen:
            chosen.add_note(f"aiflow: also asked: {error}")
    if isinstance(chosen, ModelUnavailableError):
        waits = [error.retry_after for error in passing]
        # One connection that names no wait may be asked at once.
        chosen.retry_after = None if None in waits else min(wait for wait in waits if wait is not None)
    return chosen


def _check_whole(response: ModelResponse, route: Route, *, streamed: bool) -> None:
    """Refuse an answer that came without its end."""
    details = response.provider_details or {}
    named_its_end = response.finish_reason is not None and ("finish_reason" in details or "refusal" in details)
    speaks_chat = any(cls.__name__ == "OpenAIChatModel" for cls in type(route.model).__mro__)
    # pydantic-ai takes a chat stream that just stops for a finished one. A body that is whole JSON is whole, though.
    stopped_short = streamed and (not named_its_end if speaks_chat else response.finish_reason is None)
    if stopped_short or response.state != "complete" or response.finish_reason == "error":
        raise ModelIncompleteError(
            f"the answer of {route} ended without its end: it is no answer and is not recorded; it may have been billed"
        )


def _responses(messages: list[ModelMessage]) -> list[ModelResponse]:
    from pydantic_ai.messages import ModelResponse

    return [message for message in messages if isinstance(message, ModelResponse)]


def _answer(result: AgentRunResult[Any], route: Route) -> LlmAnswer:
    responses = _responses(result.new_messages())
    reason = result.response.finish_reason
    if reason not in DONE:
        log.warning("the answer of %s ended by '%s': it may be cut", route, reason)
    return LlmAnswer(
        value=result.output,
        usage=usage_of(responses, model=route.model.model_name),
        conn_id=route.conn_id,
        finish_reason=reason,
        requests=len(responses),
        details=result.response.provider_details or {},
    )
