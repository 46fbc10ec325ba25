"""A model whose answers a test writes down; it counts what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest


class ScriptedModels:
    """
    Answer model calls from a function.

    :param answer: gets the request, gives the value; may raise.
    :param price: of each call, in US dollars; ``None``: no price is known.
    """

    def __init__(
        self,
        answer: Callable[[LlmRequest], Any] = lambda request: f"answer to: {request.prompt[:40]}",
        *,
        price: Decimal | None = None,
    ) -> None:
        self._answer = answer
        self._price = price
        self._lock = threading.Lock()
        self.requests: list[LlmRequest] = []

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Count the request and answer it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        value = self._answer(request)
        usage = Usage(model="scripted", response_id=f"r{number}", tokens_in=len(request.prompt.split()), tokens_out=1)
        return LlmAnswer(value=value, usage=replace(usage, cost=self._price), conn_id=request.llm_conn_id)

    def quote(self, request: LlmRequest, tokens_in: int, tokens_out: int) -> Decimal | None:
        """Give the price, whatever the number of tokens."""
        return self._price

    def close(self) -> None:
        """Keep nothing open."""
