"""The clients' own retries are off, and settings go only where they are taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider

from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.connection import make_one_attempt, settings_for


def openai_model() -> OpenAIChatModel:
    client = AsyncOpenAI(api_key="sk-test", base_url="http://127.0.0.1:1/v1")
    return OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))


def test_openai_speaking_clients_make_one_attempt() -> None:
    model = openai_model()
    assert model.client.max_retries > 0, "else this test shows nothing"
    make_one_attempt(model)
    assert model.client.max_retries == 0


class Events:
    """Take back event handlers, as botocore's do."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []

    def unregister(self, event: str, *, unique_id: str) -> None:
        self.taken.append((event, unique_id))


def test_botocore_makes_one_attempt() -> None:
    """Its retry loop is the handler of this event, in the modes legacy, standard and adaptive alike."""
    events = Events()
    service = SimpleNamespace(service_id=SimpleNamespace(hyphenize=lambda: "bedrock-runtime"))
    model: Any = SimpleNamespace(client=SimpleNamespace(meta=SimpleNamespace(events=events, service_model=service)))
    make_one_attempt(model)
    assert events.taken == [("needs-retry.bedrock-runtime", "retry-config-bedrock-runtime")]


def test_a_model_without_a_client_is_left_alone() -> None:
    make_one_attempt(TestModel())


@pytest.mark.parametrize("given", [{}, {"max_retries": 4}])
def test_no_retry_and_a_time_limit_go_with_each_call(given: dict[str, Any]) -> None:
    settings = settings_for(openai_model(), LlmRequest("?", model_settings=given), read_timeout=9.0)
    assert settings == {"max_retries": 0, "timeout": 9.0}


def test_the_authors_time_limit_goes_before_ours() -> None:
    request = LlmRequest("?", model_settings={"timeout": 2.0, "temperature": 1})
    assert settings_for(openai_model(), request, read_timeout=9.0)["timeout"] == 2.0


def test_a_model_that_takes_neither_gets_neither() -> None:
    model: Any = SimpleNamespace(unsupported_settings=frozenset({"timeout", "max_retries"}))
    request = LlmRequest("?", model_settings={"temperature": 1})
    assert settings_for(model, request, read_timeout=9.0) == {"temperature": 1}
