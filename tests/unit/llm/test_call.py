"""What counts for a model call, and what stays out of reprs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest


def parts(**options: Any) -> tuple[Any, ...]:
    return LlmRequest("What is due?", **options).fingerprint_parts()


@pytest.mark.parametrize(
    "options",
    [
        {"system_prompt": "Be short."},
        {"llm_conn_id": "other"},
        {"model_id": "openai:gpt-5"},
        {"model_settings": {"temperature": 0.5}},
        {"output_type": bool},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_decides_the_answer_counts(options: dict[str, Any]) -> None:
    assert parts(**options) != parts()


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 5.0},
        {"output_retries": 3},
        {"fallback_conn_ids": ("backup",)},
        {"stream": True},
        {"model_settings": {"timeout": 3, "max_retries": 2, "request_timeout": 9, "first_event_timeout": 1}},
        {"model_settings": {}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_how_the_call_is_made_does_not_count(options: dict[str, Any]) -> None:
    """Raising a time limit or adding a fallback after an outage must not void what was paid."""
    assert parts(**options) == parts()


def test_text_counts_as_it_is() -> None:
    texts = ["a\u0000b", "ab", "e\u0301", "\u00e9", " ab", "a\ufeffb"]
    assert len({LlmRequest(text).fingerprint_parts()[0] for text in texts}) == len(texts)


def test_reprs_hold_no_content() -> None:
    request = LlmRequest(
        "SECRET prompt",
        system_prompt="SECRET rules",
        model_settings={"extra_headers": {"Authorization": "SECRET"}},
        run_options={"x": "SECRET"},
    )
    assert "SECRET" not in repr(request)
    assert "SECRET" not in repr(LlmAnswer(value="SECRET answer", usage=Usage(model="m")))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LlmRequest(["hi"]), "prompt must be a str, got list"),  # type: ignore[arg-type]
        (lambda: LlmRequest("hi", system_prompt=None), "system_prompt must be a str"),  # type: ignore[arg-type]
        (lambda: LlmRequest("hi", fallback_conn_ids="backup"), "sequence of connection ids"),  # type: ignore[arg-type]
    ],
)
def test_wrong_kinds_are_refused_at_once(make: Callable[[], LlmRequest], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()
