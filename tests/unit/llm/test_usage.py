"""What a call cost."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm import usage
from airflow_aiflow.llm.usage import batch_price_of, usage_of


def response(model: str | None, tokens_in: int, tokens_out: int, *, cost: str | None = None) -> ModelResponse:
    spent = RequestUsage(input_tokens=tokens_in, output_tokens=tokens_out)
    if cost is not None:
        spent.cost = Decimal(cost)
    return ModelResponse(
        [TextPart("x")], usage=spent, model_name=model, provider_name="openai", provider_response_id=f"r{tokens_in}"
    )


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_said", set())


def test_responses_of_one_call_add_up() -> None:
    found = usage_of([response("gpt-5-mini", 1_000_000, 0), response("gpt-5-mini", 0, 1_000_000)], model="asked")
    assert found == Usage("gpt-5-mini", "r0", 1_000_000, 1_000_000, Decimal("2.25"))


def test_what_a_gateway_reports_goes_before_the_list() -> None:
    assert usage_of([response("gpt-5-mini", 10, 10, cost="0.5")], model="asked").cost == Decimal("0.5")
    assert usage_of([response("gpt-5-mini", 10, 10, cost="0")], model="asked").cost == Decimal(0)


@pytest.mark.parametrize("model", ["house-model", None])
def test_an_unknown_price_is_not_zero(model: str | None, caplog: pytest.LogCaptureFixture) -> None:
    assert usage_of([response(model, 10, 10)], model="asked").cost is None
    assert (model or "asked") in caplog.text


def test_one_unknown_price_makes_the_sum_unknown() -> None:
    both = [response("gpt-5-mini", 10, 10), response("house-model", 10, 10)]
    assert usage_of(both, model="asked").cost is None


def test_unreported_tokens_cost_an_unknown_amount() -> None:
    assert usage_of([response("gpt-5-mini", 0, 0)], model="asked").cost is None


def test_no_response_names_what_was_asked() -> None:
    assert usage_of([], model="asked") == Usage(model="asked")


def test_a_batch_has_a_price_of_its_own() -> None:
    million = 1_000_000
    single = usage_of([response("gpt-5-mini", million, million)], model="asked").cost
    assert single == Decimal("2.25")
    assert batch_price_of("gpt-5-mini", "openai", million, million) == single / 2


@pytest.mark.parametrize(
    ("model", "provider"), [("house-model", "openai"), ("gpt-5-mini", "nobody"), ("text-embedding-ada-002", "openai")]
)
def test_a_model_without_a_price_for_batches_does_not_get_that_of_single_calls(model: str, provider: str) -> None:
    assert batch_price_of(model, provider, 10, 10) is None
