"""
Guess what a model call may take, before it is made: what limits and budgets set aside for it.

The answer is taken to be as long as the longest that this step has had so far, else as long as ``max_tokens`` lets it
be. Prompts are measured, not guessed from past ones, since they differ from item to item. A guess that is too high
costs nothing but a wait, one that is too low lets calls that are at work together exceed a limit by their difference.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from airflow_aiflow.durable.record import StepRecord, Usage
from airflow_aiflow.llm.call import LlmRequest

#: Bytes of a prompt for each token, at least: English has four to five, code and other languages fewer.
BYTES_PER_TOKEN = 3

#: Tokens that a request takes beside its texts: roles, separators.
TOKENS_AROUND = 16

#: Tokens of an answer of which nothing is known, neither by ``max_tokens`` nor by an earlier call: the default limit of
#: many models.
UNKNOWN_ANSWER = 4096


@dataclass(frozen=True, slots=True)
class Estimate:
    """
    Hold what a call may take.

    :param cost: of the dearest call of the step so far, in US dollars; ``None``: none is known.
    """

    tokens_in: int
    tokens_out: int
    cost: Decimal | None = None

    @property
    def tokens(self) -> int:
        """Of prompt and answer."""
        return self.tokens_in + self.tokens_out


@dataclass(slots=True)
class _Largest:
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal | None = None


class Estimates:
    """
    Learn from calls, by the name of their step. Safe for use from several threads.

    :param records: of earlier attempts; those that are no model calls say nothing.
    """

    def __init__(self, records: Iterable[StepRecord] = ()) -> None:
        self._largest: dict[str, _Largest] = {}
        self._lock = threading.Lock()
        for record in records:
            self.learn(record.name, record.usage)

    def learn(self, name: str, usage: Usage | None) -> None:
        """
        Note what a call took.

        :param name: of its step.
        :param usage: ``None``, and one without tokens, says nothing.
        """
        if usage is None or not usage.tokens_out:
            return
        with self._lock:
            largest = self._largest.setdefault(name, _Largest())
            largest.tokens_in = max(largest.tokens_in, usage.tokens_in)
            largest.tokens_out = max(largest.tokens_out, usage.tokens_out)
            if usage.cost is not None:
                largest.cost = max(largest.cost or Decimal(0), usage.cost)

    def of(self, name: str, request: LlmRequest) -> Estimate:
        """
        Guess what a call may take.

        :param name: of its step.
        :param request: the call.
        """
        with self._lock:
            known = self._largest.get(name)
            past = _Largest() if known is None else _Largest(known.tokens_in, known.tokens_out, known.cost)
        size = sum(len(text.encode("utf-8", "replace")) for text, _ in request.texts_sent())
        measured = -(-size // BYTES_PER_TOKEN) + TOKENS_AROUND
        most = (request.model_settings or {}).get("max_tokens")
        answer = past.tokens_out or most or (UNKNOWN_ANSWER if request.answers else 0)
        # The largest prompt so far counts where ours is about as large: schemas and instructions add to what we see.
        tokens_in = max(measured, min(past.tokens_in, 2 * measured))
        return Estimate(tokens_in, min(answer, most) if most else answer, past.cost)
