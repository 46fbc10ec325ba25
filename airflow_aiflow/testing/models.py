"""A model whose answers a test writes down; it counts what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest


class ScriptedModels:
    """
    Answer model calls from a function.

    :param answer: gets the request, gives the value; may raise.
    """

    def __init__(
        self, answer: Callable[[LlmRequest], Any] = lambda request: f"answer to: {request.prompt[:40]}"
    ) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.requests: list[LlmRequest] = []

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Count the request and answer it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        value = self._answer(request)
        usage = Usage(model="scripted", response_id=f"r{number}", tokens_in=len(request.prompt.split()), tokens_out=1)
        return LlmAnswer(value=value, usage=usage)

    def close(self) -> None:
        """Keep nothing open."""
