"""
Embed one batch through pydantic-ai: one request on the network, under one deadline.

The embedding model is built from the chat model that the connection gives, for both speak to one account: the client,
with its own retries switched off, its credentials and its address are the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import AiflowConfigError, ModelIncompleteError, ModelTimeoutError
from airflow_aiflow.llm.call import LlmAnswer
from airflow_aiflow.llm.connection import Route
from airflow_aiflow.llm.embedding import EmbedRequest
from airflow_aiflow.llm.failure import clean_chain, cleaner, translate
from airflow_aiflow.llm.usage import say_unknown

if TYPE_CHECKING:
    from pydantic_ai.embeddings import EmbeddingModel, EmbeddingResult


def embedding_model(route: Route) -> EmbeddingModel:
    """
    Build the embedding model of a connection. Sends nothing.

    :param route: the connection, and the model of that name.
    :raises AiflowConfigError: if its vendor has no embeddings, or pydantic-ai knows none.
    """
    from pydantic_ai.embeddings import infer_embedding_model
    from pydantic_ai.exceptions import UserError

    model = route.model
    try:
        return infer_embedding_model(
            f"{model.system}:{model.model_name}", provider_factory=lambda _name: cast("Any", model.provider)
        )
    except (UserError, ImportError, ValueError) as error:
        raise AiflowConfigError(f"connection '{route.conn_id}' can't be used for embeddings: {error}") from error


async def ask_for_vectors(route: Route, request: EmbedRequest) -> LlmAnswer:
    """
    Embed a batch.

    :param route: whom to ask.
    :param request: the texts.
    :raises ModelError: see ``ModelCaller.call``.
    """
    model, limit = embedding_model(route), asyncio.timeout(request.timeout)
    try:
        async with limit:
            result = await model.embed(
                list(request.texts), input_type="document", settings=cast("Any", request.model_settings)
            )
    except Exception as error:
        if limit.expired():
            raise ModelTimeoutError(
                f"{route} did not answer whole within {request.timeout:g} s; it may have been billed"
            ) from error
        clean = cleaner(request)
        ours = translate(error, str(route), clean, None)
        if ours is None:  # the client stumbled over a body that is no answer
            clean_chain(error, clean)
            ours = ModelIncompleteError(
                f"{route} sent a body that holds no embeddings ({type(error).__name__}): it is not recorded; it may "
                f"have been billed"
            )
        raise ours from error
    return LlmAnswer(result.embeddings, _usage(result, route.model.model_name), route.conn_id)


def _usage(result: EmbeddingResult, model: str) -> Usage:
    name, cost = result.model_name or model, None
    if result.usage.has_values():
        try:
            cost = result.cost().total_price
        except (LookupError, ValueError):
            cost = None
    if cost is None:
        say_unknown(name)
    return Usage(
        model=name,
        response_id=result.provider_response_id,
        tokens_in=result.usage.input_tokens,
        tokens_out=0,
        cost=cost,
    )
