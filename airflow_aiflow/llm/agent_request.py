"""
Make one request of an agent to its model: one attempt on the network, under a deadline, whole or not at all.

The agent's own event loop makes it; who pays and waits for it runs in a thread beside. A streamed answer is read to its
end before anybody sees it, for one that stops short is no answer.

Not covered: an agent whose model is a ``FallbackModel`` of the author's asks the next model wherever that one says so,
also where the one before may have answered and billed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_aiflow.exceptions import (
    ModelError,
    ModelIncompleteError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.agent_results import pack_response
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.llm.connection import make_one_attempt, open_chain
from airflow_aiflow.llm.failure import cleaner, translate
from airflow_aiflow.llm.usage import price_of, usage_of

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

#: Seconds for one request where the author's settings name none: what the clients allow for one read.
REQUEST_TIMEOUT = 600.0

#: Beyond the deadline, which is to be what ends a silent server.
READ_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """
    Hold one request as pydantic-ai makes it.

    :param model: which is asked.
    :param streamed: whether the answer is read as it is written.
    """

    model: Model
    messages: list[ModelMessage]
    settings: Mapping[str, Any] | None
    parameters: ModelRequestParameters
    streamed: bool

    @property
    def timeout(self) -> float:
        """Seconds for the whole answer."""
        given = (self.settings or {}).get("timeout")
        return float(given) if isinstance(given, int | float) and given > 0 else REQUEST_TIMEOUT

    @property
    def instructions(self) -> str:
        """What the model is told to be."""
        return "\n".join(part.content for part in self.parameters.instruction_parts or ())

    def described(self, rate_limit: str | None, *, whole: bool) -> LlmRequest:
        """
        Describe the request for limits, budgets and errors; the model's connection is its own.

        :param rate_limit: the limit that it counts against.
        :param whole: whether all of the conversation is needed, to measure it.
        """
        shown = self.messages if whole else self.messages[-1:]
        return LlmRequest(
            prompt="\n".join(_texts(shown)),
            llm_conn_id="",
            model_id=self.model.model_id,
            system_prompt=self.instructions,
            model_settings=self.settings,
            timeout=self.timeout,
            rate_limit=rate_limit,
        )


class AgentCaller:
    """
    Be the ``ModelCaller`` of one request.

    :param request: what is asked.
    :param run: runs a coroutine on the agent's loop, from another thread.
    """

    def __init__(self, request: AgentRequest, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._request = request
        self._run = run

    def call(self, request: LlmRequest) -> LlmAnswer:
        """
        Ask once.

        :raises ModelError: see ``ModelCaller.call``.
        """
        response: ModelResponse = self._run(self._ask())
        model = self._request.model.model_name
        return LlmAnswer(value=pack_response(response), usage=usage_of([response], model=model))

    def quote(self, request: LlmRequest, tokens_in: int, tokens_out: int) -> Decimal | None:
        """Say what a request would cost, of the dearest of the models that may answer."""
        prices = [price_of(model, tokens_in, tokens_out) for model in leaves(self._request.model)]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None

    def close(self) -> None:
        """Keep nothing open."""

    async def _ask(self) -> ModelResponse:
        request, who = self._request, f"model '{self._request.model.model_id}'"
        for model in leaves(request.model):
            make_one_attempt(model)
        limit = asyncio.timeout(request.timeout)
        try:
            async with limit:
                response = await self._send()
        except Exception as error:
            if limit.expired():
                raise ModelTimeoutError(
                    f"{who} did not answer whole within {request.timeout:g} s; it may have been billed"
                ) from error
            ours = _translated(error, who, self._cleaner())
            if ours is None:
                raise
            raise ours from error
        _refuse_cut(response, who, request)
        return response

    def _cleaner(self) -> Callable[[str], str]:
        """Mask each text of the conversation, which a provider may quote, and the secrets that Airflow knows."""
        request = self._request
        texts = [text for text in _texts(request.messages) if text]
        masks = [cleaner(LlmRequest(text, system_prompt=request.instructions)) for text in texts or [""]]
        return lambda text: functools.reduce(lambda masked, mask: mask(masked), masks, text)

    async def _send(self) -> ModelResponse:
        request, settings = self._request, self._settings()
        if not request.streamed:
            return await request.model.request(request.messages, settings, request.parameters)
        async with request.model.request_stream(request.messages, settings, request.parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()

    def _settings(self) -> Any:
        """Add what makes one attempt of the request, where the model takes it per request."""
        request = self._request
        refused: frozenset[str] = getattr(request.model, "unsupported_settings", frozenset())
        ours = {"timeout": request.timeout + READ_GRACE, "max_retries": 0}
        given = dict(request.settings or {})
        return {**{name: value for name, value in ours.items() if name not in refused}, **given}


def leaves(model: Model) -> list[Model]:
    """
    Give the models that may answer behind a model: of a chain all, of a wrapper the inner ones.

    :param model: of any kind.
    """
    # A wrapper forwards what it has not to the model inside it, so its own attributes are looked at alone.
    own = vars(model)
    below = [own["wrapped"]] if "wrapped" in own else own.get("models", ())
    return [leaf for each in below for leaf in leaves(each)] or [model]


def default_model(conn_id: str) -> Model:
    """
    Give the model of a connection, for an agent that names none. Sends nothing.

    The next connection of a chain is asked only where the one before surely did not serve the request.

    :param conn_id: a connection of common-ai.
    :raises AiflowConfigError: if it is missing or can't be used.
    """
    routes = open_chain(LlmRequest("", llm_conn_id=conn_id)).routes
    return chained([route.model for route in routes])


def chained(models: Sequence[Model]) -> Model:
    """
    Give one model that asks several in order, each next one only where no answer can have been billed.

    :param models: in order.
    """
    from pydantic_ai.models.fallback import FallbackModel

    def surely_not_served(error: Exception) -> bool:
        return isinstance(translate(error, "", str, None), ModelUnavailableError | ModelRequestError)

    return models[0] if len(models) == 1 else FallbackModel(*models, fallback_on=surely_not_served)


def _translated(error: Exception, who: str, clean: Callable[[str], str]) -> ModelError | None:
    """Read an error; of a chain that failed whole, first what a later try can mend."""
    if not isinstance(error, ExceptionGroup):
        return translate(error, who, clean, None)
    found = [each for each in (_translated(one, who, clean) for one in error.exceptions) if each is not None]
    return next((each for each in found if isinstance(each, ModelUnavailableError)), found[0] if found else None)


def _refuse_cut(response: ModelResponse, who: str, request: AgentRequest) -> None:
    """Refuse an answer that came without its end; one that a provider goes on with later is whole so far."""
    if response.state == "suspended":
        return
    details = response.provider_details or {}
    named_its_end = response.finish_reason is not None and ("finish_reason" in details or "refusal" in details)
    [*_, last] = leaves(request.model)
    speaks_chat = any(cls.__name__ == "OpenAIChatModel" for cls in type(last).__mro__)
    # pydantic-ai takes a chat stream that just stops for a finished one.
    stopped_short = request.streamed and speaks_chat and not named_its_end
    if stopped_short or response.state != "complete" or response.finish_reason == "error":
        raise ModelIncompleteError(
            f"the answer of {who} ended without its end: it is no answer and is not recorded; it may have been billed"
        )


def _texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Give the texts of a conversation, to measure it and to keep it out of errors; files have none."""
    parts = [part for message in messages for part in message.parts]
    return [_text(getattr(part, "content", None) or getattr(part, "args", None)) for part in parts]


def _text(content: Any) -> str:
    if isinstance(content, str | int | float):
        return str(content)
    if isinstance(content, Mapping):
        return "\n".join(f"{name} {_text(value)}" for name, value in content.items())
    return "\n".join(map(_text, content)) if isinstance(content, list | tuple) else ""
