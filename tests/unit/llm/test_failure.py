"""What a failed call means, by the errors that the client library raises."""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest
from pydantic_ai import exceptions as ai

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import (
    ModelError,
    ModelIncompleteError,
    ModelOutputError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.failure import clean_chain, cleaner, translate

PROMPT = "What is due\non the first day of each month?"
QUOTA = ai.ModelHTTPError.for_category(ai.ModelQuotaExceededError, status_code=429, model_name="m")
USAGE = Usage(model="m", tokens_in=3)


def meaning(error: Exception, usage: Usage | None = None) -> ModelError | None:
    return translate(error, "model 'm' of connection 'c'", cleaner(LlmRequest(PROMPT)), usage)


def http(status: int, **options: Any) -> ai.ModelHTTPError:
    return ai.ModelHTTPError(status, "m", {"message": "why"}, **options)


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (ai.ModelConnectionError("m", "x", phase="connect"), ModelUnavailableError),
        (ai.ModelConnectionError("m", "x", phase="pool"), ModelUnavailableError),
        (ai.ModelConnectionError("m", "x", phase="write"), ModelIncompleteError),
        (ai.ModelConnectionError("m", "x", phase="read"), ModelIncompleteError),
        (ai.ModelConnectionError("m", "x"), ModelIncompleteError),
        (ai.ModelTimeoutError("m", "x", phase="connect"), ModelUnavailableError),
        (ai.ModelTimeoutError("m", "x", phase="read"), ModelTimeoutError),
        (ai.ModelRequestTimeout("m", 3.0), ModelTimeoutError),
        (http(429), ModelUnavailableError),
        (http(500), ModelUnavailableError),
        (http(599), ModelUnavailableError),
        (http(400), ModelRequestError),
        (http(403), ModelRequestError),
        (http(418), ModelRequestError),
        (http(429, in_stream=True), ModelIncompleteError),
        (
            ai.ModelHTTPError.for_category(ai.ModelQuotaExceededError, status_code=429, model_name="m"),
            ModelRequestError,
        ),
        (ai.ModelRateLimitError("m", "in a body of 200"), ModelUnavailableError),
        (ai.ModelOverloadedError("m", "in a body of 200"), ModelUnavailableError),
        (ai.ModelServerError("m", "in a body of 200"), ModelUnavailableError),
        (ai.ModelContextWindowExceededError("m", "too long"), ModelRequestError),
        (ai.ModelAPIError("m", "Failed to decode response as JSON"), ModelIncompleteError),
    ],
    ids=lambda one: getattr(one, "__name__", None) or f"{type(one).__name__} {getattr(one, 'phase', '')}",
)
def test_what_an_error_means(error: Exception, ours: type[ModelError]) -> None:
    assert type(meaning(error)) is ours


def test_a_refused_connect_is_known_by_its_cause() -> None:
    """Clients re-wrap: the outermost class may say less than what it was raised from."""
    error = ai.ModelConnectionError("m", "Connection error.")
    error.__cause__ = RuntimeError("wrapped")
    error.__cause__.__cause__ = ConnectionRefusedError(111, "refused")
    assert type(meaning(error)) is ModelUnavailableError


@pytest.mark.parametrize("error", [KeyError("author"), TimeoutError("author"), TypeError("author")], ids=repr)
def test_other_errors_are_not_ours(error: Exception) -> None:
    assert meaning(error) is None


def test_without_an_answer_a_misbehaviour_is_a_broken_one() -> None:
    assert type(meaning(ai.UnexpectedModelBehavior("bad", "BODY"))) is ModelIncompleteError
    found = meaning(ai.UnexpectedModelBehavior("bad", "BODY"), USAGE)
    assert isinstance(found, ModelOutputError)
    assert found.usage is USAGE


def test_a_refusal_of_the_content_filter_says_so_without_its_words() -> None:
    error = ai.ContentFilterError("Content filter triggered. Refusal: 'I WON'T'", body='["I WON\'T"]')
    found = meaning(error, USAGE)
    assert "content filter" in str(found)
    assert "WON'T" not in "".join(traceback.format_exception(error)) + str(found)


@pytest.mark.parametrize("form", [PROMPT, repr(PROMPT), json.dumps(PROMPT)], ids=["plain", "repr", "json"])
def test_prompts_are_masked_in_every_form(form: str) -> None:
    inner = ValueError(f"inner {form}")
    error = ai.ModelHTTPError(400, "m", {"error": {"message": f"no: {form}", "more": [form]}})
    error.__cause__ = inner
    clean_chain(error, cleaner(LlmRequest(PROMPT)))
    shown = "".join(traceback.format_exception(error))
    assert "first day" not in shown
    assert "first day" not in repr(error.body)
    assert "[prompt]" in shown


def test_a_short_prompt_is_not_looked_for() -> None:
    assert cleaner(LlmRequest("not"))("it was not served") == "it was not served"


def test_long_messages_are_cut() -> None:
    found = meaning(ai.ModelHTTPError(500, "m", {"message": "x" * 10_000}))
    assert len(str(found)) < 500
