"""
One model call as plain values: the request, the answer and who can make the call.

A request counts by what decides the answer, not by how the call is made: raising a time limit or adding a fallback
connection after an outage must not make recorded answers void. A connection counts by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Protocol, runtime_checkable

from airflow_aiflow.durable.budget import Budget
from airflow_aiflow.durable.record import Usage

#: Seconds for one call, output retries and fallbacks included: long answers of large models take about a minute.
DEFAULT_TIMEOUT = 120.0

#: Settings of a model that say how to make the call; the answer is the same without them.
SETTINGS_OF_THE_TRANSPORT = frozenset({"timeout", "max_retries", "request_timeout", "first_event_timeout"})


def check_text(name: str, text: object) -> None:
    """
    Check a text of a call.

    :param name: of the parameter.
    :raises TypeError: if it is none.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, got {type(text).__name__}")


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """
    Describe one model call. Prompts and settings stay out of the ``repr``: logs show no content and no header.

    :param prompt: what is asked.
    :param output_type: what the answer must be: ``str``, or a type that the answer is validated against.
    :param llm_conn_id: a connection of common-ai.
    :param model_id: such as ``openai:gpt-5``; ``None``: the connection's own model.
    :param system_prompt: instructions that go before the prompt.
    :param model_settings: such as ``temperature`` or ``max_tokens``, in pydantic-ai's names.
    :param output_retries: how often the model is asked again when its answer does not fit ``output_type``; ``None``:
        pydantic-ai's default.
    :param fallback_conn_ids: asked in order when the one before surely did not take the call; ``None``: those that the
        connection names itself.
    :param timeout: seconds for the whole call.
    :param stream: read the answer as it is written.
    :param on_text: gets each piece of a streamed text answer; called from another thread, must be quick.
    :param rate_limit: the name of the limit that the call counts against.
    :param budget: of all calls of this step's name in the task, beside the task's own.
    :param run_options: handed on to pydantic-ai's ``Agent.run`` as they are.
    """

    #: Whether the model answers in tokens that are paid for.
    answers: ClassVar[bool] = True

    prompt: str = field(repr=False)
    output_type: Any = str
    llm_conn_id: str = "pydanticai_default"
    model_id: str | None = None
    system_prompt: str = field(default="", repr=False)
    model_settings: Mapping[str, Any] | None = field(default=None, repr=False)
    output_retries: int | None = None
    fallback_conn_ids: tuple[str, ...] | None = None
    timeout: float = DEFAULT_TIMEOUT
    stream: bool = False
    on_text: Callable[[str], object] | None = field(default=None, repr=False)
    rate_limit: str | None = None
    budget: Budget | None = None
    run_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, text in (("prompt", self.prompt), ("system_prompt", self.system_prompt)):
            check_text(name, text)
        if isinstance(self.fallback_conn_ids, str):
            raise TypeError(f"fallback_conn_ids must be a sequence of connection ids, got {self.fallback_conn_ids!r}")

    def texts_sent(self) -> tuple[tuple[str, str], ...]:
        """Give each text that leaves this process, and what people call it."""
        return ((self.prompt, "prompt"), (self.system_prompt, "system prompt"))

    def fingerprint_parts(self) -> tuple[Any, ...]:
        """
        Give everything that decides the answer, as plain values.

        :raises FlowOptionError: if ``output_type`` is no type that an answer can be validated against.
        """
        from airflow_aiflow.llm.schema import output_schema

        settings = {
            name: value for name, value in (self.model_settings or {}).items() if name not in SETTINGS_OF_THE_TRANSPORT
        }
        return (
            self.prompt,
            self.system_prompt,
            self.llm_conn_id,
            self.model_id,
            settings,
            *output_schema(self.output_type),
        )


#: What people call the parts of ``LlmRequest.fingerprint_parts``; whatever follows them is the output type's.
PART_NAMES = ("prompt", "system prompt", "connection", "model", "settings")
OUTPUT_TYPE = "output type"


@dataclass(frozen=True, slots=True)
class LlmAnswer:
    """
    Hold what a model call gave. The value stays out of the ``repr``.

    :param value: the answer, validated against the request's ``output_type``.
    :param usage: which model answered, and what the call cost, output retries included.
    :param conn_id: the connection that answered.
    :param finish_reason: why the model stopped: ``stop``, ``length`` (a text that its token limit cut), or what the
        provider said; ``None``: it said nothing.
    :param requests: requests that were answered: one, and one more for each output retry.
    :param details: what the provider said beside the answer, such as the confidence of a decision model.
    """

    value: Any = field(repr=False)
    usage: Usage
    conn_id: str = ""
    finish_reason: str | None = None
    requests: int = 1
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)


class ModelCaller(Protocol):
    """Make model calls. Safe for use from several threads, also where an event loop is running."""

    def call(self, request: LlmRequest) -> LlmAnswer:
        """
        Ask once: one request on the network, and one more for each output retry or fallback connection.

        :raises ModelUnavailableError: if the call was surely not served now; it may be repeated.
        :raises ModelRequestError: if the call was refused as it is.
        :raises ModelTimeoutError: if no whole answer came in time: the provider may have billed it.
        :raises ModelIncompleteError: if the answer broke off: the provider may have billed it.
        :raises ModelOutputError: if an answer came that does not fit ``output_type``.
        """

    def close(self) -> None:
        """Give connections and threads back; the next call opens them again."""


@runtime_checkable
class KnowsPrices(Protocol):
    """Be a model caller that can say beforehand what a call would cost."""

    def quote(self, request: LlmRequest, tokens_in: int, tokens_out: int) -> Decimal | None:
        """
        Say what a call would cost, of the dearest of the request's connections. Sends nothing.

        :return: US dollars; ``None``: a price is not known.
        """
