"""A model whose answers a test writes down; it counts what it was asked."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.llm.embedding import EmbedRequest


def vector_of(text: str) -> list[float]:
    """
    Give a vector that only this text has.

    :param text: what is embedded.
    :return: eight numbers from 0 to 1.
    """
    return [byte / 255 for byte in hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]]


class ScriptedModels:
    """
    Answer model calls from a function.

    :param answer: gets the request, gives the value; may raise.
    :param price: of each call, in US dollars; ``None``: no price is known.
    :param vectors: gets a batch of texts, gives a vector for each; may raise.
    """

    def __init__(
        self,
        answer: Callable[[LlmRequest], Any] = lambda request: f"answer to: {request.prompt[:40]}",
        *,
        price: Decimal | None = None,
        vectors: Callable[[EmbedRequest], Any] = lambda request: list(map(vector_of, request.texts)),
    ) -> None:
        self._answer = answer
        self._price = price
        self._lock = threading.Lock()
        self._vectors = vectors
        self.requests: list[LlmRequest] = []
        self.embedded: list[EmbedRequest] = []

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Count the request and answer it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        value = self._answer(request)
        usage = Usage(model="scripted", response_id=f"r{number}", tokens_in=len(request.prompt.split()), tokens_out=1)
        return LlmAnswer(value=value, usage=replace(usage, cost=self._price), conn_id=request.llm_conn_id)

    def embed(self, request: EmbedRequest) -> LlmAnswer:
        """Count the request and give a vector for each of its texts."""
        with self._lock:
            self.embedded.append(request)
            number = len(self.embedded)
        value = self._vectors(request)
        words = sum(len(text.split()) for text in request.texts)
        usage = Usage(model="scripted", response_id=f"e{number}", tokens_in=words, cost=self._price)
        return LlmAnswer(value=value, usage=usage, conn_id=request.llm_conn_id)

    def quote(self, request: LlmRequest, tokens_in: int, tokens_out: int) -> Decimal | None:
        """Give the price, whatever the number of tokens."""
        return self._price

    def close(self) -> None:
        """Keep nothing open."""
