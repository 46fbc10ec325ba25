"""
A provider's batch API, through common-ai's adapters: half the price, an answer within a day.

The adapters know each provider's wire format; whether a batch is submitted once is ours to see to. Their client makes
one network attempt here, for each repeat of a submission would be a batch of its own.

Not covered: what the provider takes off for a prompt whose beginning it knew already; the cost is that of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.job import JobStatus
from airflow_aiflow.exceptions import AiflowConfigError, FlowOptionError
from airflow_aiflow.llm.call import SETTINGS_OF_THE_TRANSPORT
from airflow_aiflow.llm.usage import batch_price_of, batch_quote

if TYPE_CHECKING:
    from airflow.providers.common.ai.batch.base import BatchAdapter, BatchRequest
    from airflow.providers.common.ai.batch.output_schema import OutputSpec

#: Tokens of an answer where the author names no ``max_tokens``: a batch must name a number, and a long answer has room.
MAX_TOKENS = 4_096

#: Batches of the account that are looked through for ours: with a hundred a day those of a month. Beyond, whether ours
#: is among them nobody knows.
MOST_LISTED = 3_000

#: Prefixes of pydantic-ai for one provider's two wire formats -> the provider.
PROVIDERS = {"openai-chat": "openai", "openai-responses": "openai"}

#: Providers whose batches bear our key, so that a lost one is found.
FINDABLE = frozenset({"openai"})

#: What is said of a batch that the provider does not know, or no longer.
FORGOTTEN = "the provider knows no such batch any more"


@dataclass(frozen=True, slots=True)
class BatchRow:
    """
    Be what became of one prompt.

    :param index: of the prompt, from 0.
    :param value: the answer in plain form; of no meaning where there is an error.
    :param error: why there is none.
    :param tokens_in: of the prompt.
    :param tokens_out: of the answer.
    :param cost: US dollars; ``None``: the price is unknown.
    """

    index: int
    value: Any
    error: str | None
    tokens_in: int
    tokens_out: int
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class ProviderBatch:
    """
    Speak to one provider about batches of one kind.

    :param conn_id: a connection of common-ai.
    :param model_id: such as ``openai:gpt-5-mini``; ``None``: the connection's own model.
    :param system_prompt: goes before each prompt.
    :param settings: in pydantic-ai's names; ``max_tokens`` counts, the others go into each request as they are.
    :param schema_name: of the answers' schema.
    :param schema: JSON schema of an answer; ``None``: answers are text.
    """

    conn_id: str
    model_id: str | None
    system_prompt: str
    settings: Mapping[str, Any]
    schema_name: str
    schema: Mapping[str, Any] | None

    @contextmanager
    def _open(self) -> Iterator[tuple[BatchAdapter, str]]:
        """Give the provider's adapter and the bare name of the model, and close its client."""
        dispatch, connection = _dispatch(), _connection(self.conn_id)
        prefix, _, bare = (self.model_id or connection.extra_dejson.get("model") or "").partition(":")
        model_id = f"{PROVIDERS.get(prefix, prefix)}:{bare}" if bare else prefix
        try:
            name = dispatch.resolve_adapter_name(connection.conn_type, model_id)
            adapter = dispatch.build_adapter_from_connection(name, connection)
        except Exception as error:  # common-ai has one class for each provider's trouble
            raise AiflowConfigError(f"connection '{self.conn_id}' can't be used for batches: {error}") from error
        if hasattr(adapter._client, "max_retries"):
            adapter._client.max_retries = 0
        try:
            yield adapter, bare
        finally:
            adapter.close()

    def _request(self, bare: str) -> dict[str, Any]:
        given = {name: value for name, value in self.settings.items() if name not in SETTINGS_OF_THE_TRANSPORT}
        tokens = given.pop("max_tokens", MAX_TOKENS)
        return {
            "model": bare,
            "output_spec": self._spec(),
            "system_prompt": self.system_prompt,
            "max_tokens": tokens,
            "request_params": given,
        }

    def _spec(self) -> OutputSpec:
        """Describe answers to the adapter, which reads no more of it than the schema."""
        from airflow.providers.common.ai.batch.output_schema import OutputSpec
        from pydantic import TypeAdapter

        schema = dict(self.schema) if self.schema is not None else {}
        return OutputSpec(str, self.schema is not None, schema, self.schema_name, TypeAdapter(str))

    def provider(self, prompts: Sequence[str], key: str) -> str:
        """
        See that a batch could be submitted. Sends nothing.

        :param prompts: all of them.
        :param key: as long as the one that the batch will bear.
        :return: the provider's name.
        :raises FlowOptionError: if the provider would not take it.
        """
        with self._open() as (adapter, bare):
            request = self._request(bare)
            try:
                adapter.validate_requests(_requests(prompts), idempotency_key=key, **request)
            except ValueError as error:
                raise FlowOptionError(f"llm_batch(): {error} Nothing was submitted") from error
            return adapter.name

    def quote(self, calls: Mapping[tuple[int, int], int]) -> Decimal | None:
        """
        Say what a batch would cost. Sends nothing.

        :param calls: how many prompts there are of so many tokens, with an answer of so many.
        :return: US dollars; ``None``: no price is known.
        """
        total = Decimal(0)
        with self._open() as (adapter, bare):
            for (tokens_in, tokens_out), number in calls.items():
                price = batch_quote(bare, adapter.name, tokens_in, tokens_out)
                if price is None:
                    return None
                total += number * price
        return total

    def submit(self, prompts: Sequence[str], key: str, fingerprint: str) -> str:
        """
        Submit a batch.

        :param prompts: all of them.
        :param key: that the batch bears.
        :param fingerprint: of the prompts, in hex.
        :return: the batch's id.
        """
        with self._open() as (adapter, bare):
            request = self._request(bare)
            made = adapter.submit(_requests(prompts), idempotency_key=key, input_fingerprint=fingerprint, **request)
            return made.batch_id

    def status(self, batch_id: str) -> JobStatus:
        """
        Ask how a batch stands. One that expired is done: what it answered is paid for, and the rest are failed items.

        :param batch_id: what ``submit`` gave.
        """
        with self._open() as (adapter, _):
            try:
                state = adapter.get_batch(batch_id)
            except Exception as error:
                if getattr(error, "status_code", None) != 404:
                    raise
                return JobStatus("failed", message=FORGOTTEN)
        counts = None if state.counts is None else {name: number for name, number in state.counts.items() if number}
        word = "completed" if state.status == "expired" else state.status
        return JobStatus(word, progress=counts, message=state.error_message or "")

    def came_to_nothing(self, batch_id: str) -> bool:
        """
        Say whether a batch surely ended without answers; one that the provider can't be asked about did not.

        :param batch_id: what ``submit`` gave.
        """
        with self._open() as (adapter, _):
            try:
                return adapter.get_batch(batch_id).status in ("failed", "cancelled")
            except Exception:  # unknown there, perhaps since it is another account's; or no answer
                return False

    def find(self, key: str) -> str | None:
        """
        Find a batch by the key that it bears.

        :param key: given to ``submit``.
        :return: its id; ``None``: there is none.
        :raises LookupError: if there are too many batches to tell.
        """
        with self._open() as (adapter, _):
            for seen, batch in enumerate(adapter._client.batches.list(limit=100)):
                if (batch.metadata or {}).get("idempotency_key") == key:
                    return str(batch.id)
                if seen >= MOST_LISTED:
                    raise LookupError(f"the account has more than {MOST_LISTED:,} batches: ours may be an older one")
        return None

    def cancel(self, batch_id: str) -> None:
        """
        Cancel a batch.

        :param batch_id: what ``submit`` gave.
        """
        with self._open() as (adapter, _):
            adapter.cancel_batch(batch_id)

    def rows(self, batch_id: str, output_type: Any) -> Iterator[BatchRow]:
        """
        Read what became of the prompts, in no order.

        :param batch_id: of a batch that is done.
        :param output_type: that answers are validated against.
        """
        from airflow.providers.common.ai.batch.output_schema import build_output_spec, validate_extracted_output

        spec = build_output_spec(output_type)
        with self._open() as (adapter, bare):
            for raw in adapter.iter_results(batch_id):
                usage = raw.usage or {}
                tokens = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
                served = raw.provider_status == "success"
                # An answer without its tokens costs nobody knows what; what was not served costs nothing.
                cost = batch_price_of(bare, adapter.name, *tokens) if any(tokens) else None if served else Decimal(0)
                paid = *tokens, cost
                if not served:
                    said = (raw.error or {}).get("message") or "no reason was given"
                    yield BatchRow(raw.index, None, f"{raw.provider_status}: {said}", *paid)
                    continue
                outcome = validate_extracted_output(adapter.extract_output(raw, spec), spec)
                error = None if outcome.ok else f"the answer does not fit: {outcome.error_message}"
                yield BatchRow(raw.index, outcome.value, error, *paid)


def answer_schema(output_type: Any) -> tuple[str, Mapping[str, Any] | None]:
    """
    Say how a provider is told of an answer's type.

    :param output_type: ``str``, a pydantic model, ``list[int]`` ...
    :return: the schema's name, and the schema; ``None``: answers are text.
    :raises FlowOptionError: if it has no schema.
    """
    _dispatch()
    from airflow.providers.common.ai.batch.output_schema import build_output_spec

    try:
        spec = build_output_spec(output_type)
    except ValueError as error:
        raise FlowOptionError(f"llm_batch(): {error}") from error
    return spec.schema_name, spec.json_schema if spec.is_structured else None


def _requests(prompts: Sequence[str]) -> list[BatchRequest]:
    return [{"prompt": prompt} for prompt in prompts]


def _dispatch() -> Any:
    try:
        from airflow.providers.common.ai.batch import dispatch
    except ImportError as error:
        raise AiflowConfigError(f"model calls need the extra: pip install 'airflow-aiflow[llm]' ({error})") from error
    return dispatch


def _connection(conn_id: str) -> Any:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise AiflowConfigError(f"{error}; a batch needs a connection of type pydanticai") from error
