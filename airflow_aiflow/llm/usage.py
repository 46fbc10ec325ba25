"""
What a model call cost, from the responses that it took.

Prices come from the list inside the ``genai-prices`` package: nothing is fetched. A model that is not in it costs an
unknown amount, never zero.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from airflow_aiflow.durable.record import Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

log = logging.getLogger(__name__)

#: Models that were said to have no known price, so that a task of a thousand calls says it once.
_said: set[str] = set()


def usage_of(responses: Sequence[ModelResponse], *, model: str) -> Usage:
    """
    Add up the responses of one call: more than one where an answer did not fit and the model was asked again.

    :param responses: in order; the last one names the model and the response.
    :param model: the name that was asked for, where the provider names none.
    :return: tokens; cost in US dollars, ``None`` where the price of one of the responses is unknown.
    """
    if not responses:
        return Usage(model=model)
    name = responses[-1].model_name or model
    costs = [_cost(response) for response in responses]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        say_unknown(name)
    return Usage(
        model=name,
        response_id=responses[-1].provider_response_id,
        tokens_in=sum(response.usage.input_tokens for response in responses),
        tokens_out=sum(response.usage.output_tokens for response in responses),
        cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )


def _cost(response: ModelResponse) -> Decimal | None:
    if response.usage.cost is not None:  # what a gateway reported, or the list's price
        return response.usage.cost
    if not response.usage.has_values() or not response.model_name:
        return None
    try:
        return response.cost().total_price
    except (LookupError, ValueError):
        return None


def price_of(model: Model, tokens_in: int, tokens_out: int) -> Decimal | None:
    """
    Look up what a call of a model would cost.

    :param model: whose name and provider say which price.
    :param tokens_in: of the prompt.
    :param tokens_out: of the answer.
    :return: US dollars; ``None``: no price is known.
    """
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    usage = RequestUsage(input_tokens=tokens_in, output_tokens=tokens_out)
    return _cost(ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=model.system))


def batch_price_of(model: str, provider: str, tokens_in: int, tokens_out: int) -> Decimal | None:
    """
    Look up what a call costs in a provider's batch.

    :param model: its bare name.
    :param provider: whose it is.
    :param tokens_in: of the prompt.
    :param tokens_out: of the answer.
    :return: US dollars; ``None``: no price for batches is known.
    """
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    try:
        found = calc_price(
            Tokens(input_tokens=tokens_in, output_tokens=tokens_out),
            model,
            provider_id=provider,
            price_context={"processing": "batch"},
        )
    except (LookupError, ValueError, TypeError):  # an older list knows no such prices
        return None
    # Without a price for batches the list gives that of single calls, which is another one.
    known = any(variant.when.get("processing") == "batch" for variant in found.model.price_variants or ())
    return found.total_price if known else None


def batch_quote(model: str, provider: str, tokens_in: int, tokens_out: int) -> Decimal | None:
    """
    Look up what a call costs in a provider's batch, at most: where no price for batches is known, that of single calls.

    :param model: its bare name.
    :param provider: whose it is.
    :param tokens_in: of the prompt.
    :param tokens_out: of the answer.
    :return: US dollars; ``None``: no price is known.
    """
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    price = batch_price_of(model, provider, tokens_in, tokens_out)
    if price is not None:
        return price
    try:
        tokens = Tokens(input_tokens=tokens_in, output_tokens=tokens_out)
        return calc_price(tokens, model, provider_id=provider).total_price
    except (LookupError, ValueError):
        return None


def say_unknown(model: str) -> None:
    """
    Say, once for a model, that no price is known for it.

    :param model: its name.
    """
    if model not in _said:
        _said.add(model)
        log.warning("no price is known for model '%s' (or it reported no tokens): its cost stays unknown", model)
