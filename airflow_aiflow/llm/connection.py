"""
Turn a request's connections into models that make one network attempt a call.

Connections are read and models built by common-ai's ``PydanticAIHook``, so every vendor that it knows works, with the
rules that its users know (a bare model name, a chain of fallbacks in the connection). Only the chain's walk is ours:
common-ai's goes on to the next connection also where the first may have answered and billed.

Not covered: xAI's gRPC client repeats a call that its server reports as unavailable; it has no switch that a
connection could set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.llm.call import LlmRequest

if TYPE_CHECKING:
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook
    from pydantic_ai.models import Model


@dataclass(frozen=True, slots=True)
class Route:
    """Hold one connection and its model."""

    conn_id: str
    model: Model

    def __str__(self) -> str:
        return f"model '{self.model.model_id}' of connection '{self.conn_id}'"


@dataclass(frozen=True, slots=True)
class Chain:
    """Hold the connections to ask, in order, and the hook that builds agents for them."""

    hook: PydanticAIHook
    routes: tuple[Route, ...]


def open_chain(request: LlmRequest) -> Chain:
    """
    Read the connections and build their models. Sends nothing.

    :param request: names the connections and the model.
    :raises AiflowConfigError: if a connection is missing or can't be used for model calls.
    """
    hook_class = _hook_class()
    from airflow.sdk.exceptions import AirflowNotFoundException

    fallbacks = request.fallback_conn_ids
    try:
        hook = hook_class.get_hook(
            request.llm_conn_id,
            hook_params={
                "model_id": request.model_id,
                "fallback_conn_ids": None if fallbacks is None else list(fallbacks),
            },
        )
        models = _models(hook.get_conn())
    except AirflowNotFoundException as error:
        raise AiflowConfigError(
            f"{error}; a model call needs a connection of type pydanticai: create it with `airflow connections add` "
            f"or set AIRFLOW_CONN_{request.llm_conn_id.upper()}"
        ) from error
    except ImportError as error:
        raise AiflowConfigError(
            f"connection '{request.llm_conn_id}' needs a package that is not installed: {error}"
        ) from error
    except Exception as error:
        raise AiflowConfigError(f"connection '{request.llm_conn_id}' can't be used for model calls: {error}") from error
    conn_ids = [request.llm_conn_id, *_fallback_conn_ids(hook, request)]
    for model in models:
        make_one_attempt(model)
    return Chain(hook, tuple(Route(conn_id, model) for conn_id, model in zip(conn_ids, models, strict=True)))


def _hook_class() -> type[PydanticAIHook]:
    try:
        from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook
    except ImportError as error:
        raise AiflowConfigError(f"model calls need the extra: pip install 'airflow-aiflow[llm]' ({error})") from error
    return PydanticAIHook


def _models(model: Model) -> list[Model]:
    from pydantic_ai.models.fallback import FallbackModel

    return list(model.models) if isinstance(model, FallbackModel) else [model]


def _fallback_conn_ids(hook: PydanticAIHook, request: LlmRequest) -> list[str]:
    given: Any = request.fallback_conn_ids
    if given is None:
        given = hook.get_connection(request.llm_conn_id).extra_dejson.get("fallback_conn_ids") or []
    return [conn_id.strip() for conn_id in given if conn_id.strip()]


def make_one_attempt(model: Model) -> None:
    """
    Switch the client's own retries off: each is a request that is billed and that nobody counted.

    :param model: of any vendor. ``settings_for`` does the same where a client takes it per request.
    """
    client: Any = getattr(model, "client", None)
    if hasattr(client, "max_retries"):  # the clients of OpenAI, Anthropic, Groq and what speaks like them
        client.max_retries = 0
    events = getattr(getattr(client, "meta", None), "events", None)
    if events is not None:  # botocore: its retry loop is an event handler, registered with the client
        service = client.meta.service_model.service_id.hyphenize()
        events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")


def settings_for(model: Model, request: LlmRequest, *, read_timeout: float) -> dict[str, Any]:
    """
    Give the settings of one call: the author's, and ours that say how it is made.

    :param model: which of ours it takes.
    :param request: holds the author's.
    :param read_timeout: seconds without a byte; the author's ``timeout`` goes before it.
    """
    given = request.model_settings or {}
    ours = {"timeout": given.get("timeout", read_timeout), "max_retries": 0}
    refused: frozenset[str] = getattr(model, "unsupported_settings", frozenset())
    return {**given, **{name: value for name, value in ours.items() if name not in refused}}
