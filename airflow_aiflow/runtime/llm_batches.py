"""
``flow.llm_batch``: a list of prompts handed to a provider's batch API once, and its answers as files.

The submission is the effect of a job (see ``jobs``), its key the fingerprint of all that decides the answers: a killed
attempt, a retry and a clear attach to the batch that there is. Other prompts are refused while a batch of theirs may
have answers, and make another one after it came to nothing; so does a fresh start that a person asked for. The prompts
lie in the artifact store, so the intent stays small whatever their number.
"""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, BinaryIO

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.fingerprint import print_parts
from airflow_aiflow.durable.identity import OWN_KEY, EffectId, effect_namespace, idempotency_key
from airflow_aiflow.durable.policy import Duration, check_name, seconds
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import EffectConflictError, FlowOptionError, ItemsFailedError
from airflow_aiflow.llm.call import LlmRequest, check_text
from airflow_aiflow.llm.provider_batch import FINDABLE, ProviderBatch, answer_schema
from airflow_aiflow.llm.usage import say_unknown
from airflow_aiflow.runtime.batch_budget import BatchBudget
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.files import save_file
from airflow_aiflow.runtime.flow_outside import OutsideCalls
from airflow_aiflow.runtime.jobs import JobCall, result_key, run_job
from airflow_aiflow.runtime.map_files import items_of
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.map_shards import JSON_LINES, ShardWriter
from airflow_aiflow.runtime.model_calls import ModelCalls
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran

#: Options of ``llm`` that have no meaning here, and why.
WITHOUT_MEANING = {
    "rate_limit": "a provider's batches have limits of their own",
    "fallback_conn_ids": "a batch is one provider's",
    "stream": "a batch's answers come at once",
    "reuse": "a batch is submitted as a whole; flow.llm_map takes single answers of other runs",
    "output_retries": "nobody is asked again; give what failed to flow.llm_map",
}

#: Seconds that the submission may take: a provider's largest file of prompts has 200 MB.
SUBMIT_SECONDS = 600.0

#: Bytes of prompts that stay in memory before a temporary file takes them.
IN_MEMORY = 4 << 20

#: Failed prompts that have a line of the log.
MOST_NAMED = 10

#: As long as any key that a batch bears.
SOME_KEY = idempotency_key(EffectId("", "", OWN_KEY), 0)


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Describe one call of ``flow.llm_batch``; see there."""

    name: str
    prompts: Iterable[str] | ArtifactRef
    options: Mapping[str, Any] = field(repr=False)
    on_item_error: str | float
    key: str | None
    poll_interval: Duration
    timeout: Duration


def run_llm_batch(session: Session, flow: OutsideCalls, models: ModelCalls, call: BatchCall) -> ArtifactRef:
    """
    Hand prompts to a provider's batch API, or attach to the batch that was made of them, and wait for its answers.

    :param session: the attempt at work.
    :param flow: gives the submission's identity.
    :param models: checks the request's options.
    :param call: what is wished.
    :return: the manifest of the answers.
    :raises BudgetExceededError: if a budget might not hold; nothing was submitted.
    :raises EffectConflictError: if an earlier attempt submitted a batch of other prompts, which is paid for.
    :raises JobFailedError: if the batch ended without answers, or not in its time.
    :raises ItemsFailedError: if more prompts have no answer than may.
    """
    rules = MapRules(on_item_error=call.on_item_error)
    request = _request(session, models, call, rules)
    schema_name, schema = answer_schema(request.output_type)
    settings = dict(request.model_settings or {})
    batch = ProviderBatch(request.llm_conn_id, request.model_id, request.system_prompt, settings, schema_name, schema)
    with flow_call(session, counts=False):
        prompts = [_checked(session, number, prompt) for number, prompt in enumerate(items_of(call.prompts))]
        if not prompts:
            session.services.host.log(f"aiflow: {call.name}: no prompts, nothing is submitted", warning=True)
            return ShardWriter(session, call.name).close(0)
        provider = batch.provider(prompts, SOME_KEY)
        stored = _stored(session, call.name, prompts)
    parts = [("kind", "llm batch"), ("prompts", stored.sha256), ("request", request.fingerprint_parts()[1:])]
    printed = print_parts([*parts, ("version", call.options.get("version"))], secrets=session.secrets)
    effect = EffectId(_namespace(session), call.name, call.key or printed.digest.hex())
    paid = BatchBudget(session, models.budgets, effect, request, batch, prompts, _lasts(call))
    collect = partial(_collect, session, call.name, batch, request.output_type, len(prompts), rules, paid)
    job = JobCall(
        call.name,
        submit_prompts,
        (stored, batch.conn_id, batch.model_id, batch.system_prompt, dict(batch.settings), schema_name, schema),
        poll=batch.status,
        result=collect,
        find=batch.find if provider in FINDABLE else None,
        cancel=batch.cancel,
        key=effect.key,
        poll_interval=call.poll_interval,
        timeout=call.timeout,
        options={"scope": "generation", "timeout": SUBMIT_SECONDS},
        ran=collect,
        payment=paid,
    )
    with flow_call(session, counts=False):
        _refuse_left(session, effect, batch)
    manifest: ArtifactRef = run_job(session, flow, job)
    return manifest


def _namespace(session: Session) -> str:
    return effect_namespace("generation", session.attempt.execution, session.taken.generation)


def _lasts(call: BatchCall) -> float:
    """Say within how many seconds of its intent a batch has ended, or is given up."""
    return SUBMIT_SECONDS + seconds(call.timeout, "timeout")


def _refuse_left(session: Session, ours: EffectId, batch: ProviderBatch) -> None:
    """
    Refuse to pay for a further batch while an earlier attempt's of this name is left behind with its answers.

    The task's body runs again at each look, so prompts that are made anew each time would pay for a batch at each.
    Where its answers were taken, other prompts are another request, as anywhere; that is said.
    """
    replay, namespace, name = session.replay, ours.namespace, ours.name
    if ours in (replay.effects | replay.open):
        return
    for effect, record in replay.effects.items():
        if (effect.namespace, effect.name) != (namespace, name) or record.effect in replay.reached:
            continue
        batch_id = None if record.result is None else session.payloads.load_done(record.result, name, str)
        others = f"its prompts, or what goes with them, are not those of batch {batch_id} (#{record.number})"
        if isinstance(batch_id, str) and replay.find(result_key(name, batch_id)) is not None:
            session.services.host.log(
                f"aiflow: '{name}' submits another batch: {others}, whose answers were taken", warning=True
            )
        elif not isinstance(batch_id, str) or not batch.came_to_nothing(batch_id):
            raise EffectConflictError(
                f"llm_batch '{name}': {others} that an earlier attempt submitted and that is paid for. Nothing was "
                f"submitted. Prompts are made anew at each look: where they come from a query or a clock, make them in "
                f"a flow.step or save them first. Where another batch is meant, give it another name, or: aiflow "
                f'effects release {record.number} --reason "..."'
            )


def _stored(session: Session, name: str, prompts: Sequence[str]) -> ArtifactRef:
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as lines:
        for prompt in prompts:
            lines.write(json.dumps(prompt).encode() + b"\n")
        return save_file(session, lines, f"{name}-prompts.jsonl", JSON_LINES)


def submit_prompts(
    ctx: EffectContext,
    prompts: ArtifactRef,
    conn_id: str,
    model_id: str | None,
    system_prompt: str,
    settings: Mapping[str, Any],
    schema_name: str,
    schema: Mapping[str, Any] | None,
) -> str:
    """
    Submit a batch: the effect, whose arguments are all that a person needs to see of it.

    :param ctx: has the key that the batch bears.
    :return: the batch's id.
    """
    with prompts.open() as stream:
        texts = [json.loads(line) for line in stream.read().splitlines()]
    batch = ProviderBatch(conn_id, model_id, system_prompt, settings, schema_name, schema)
    return batch.submit(texts, ctx.idempotency_key, prompts.sha256)


def _request(session: Session, models: ModelCalls, call: BatchCall, rules: MapRules) -> LlmRequest:
    check_name("llm_batch", call.name)
    rules.check("llm_batch")
    for option, why in WITHOUT_MEANING.items():
        if call.options.get(option):
            raise FlowOptionError(f"llm_batch(): {option}= has no meaning here: {why}. Nothing was submitted")
    given = {name: value for name, value in call.options.items() if name not in WITHOUT_MEANING and name != "version"}
    try:
        return models.request("", **given)
    except TypeError as error:
        raise TypeError(str(error).replace("LlmRequest.__init__", "llm_batch")) from None


def _checked(session: Session, number: int, prompt: Any) -> str:
    check_text(f"prompt {number}", prompt)
    text = str(prompt)
    if not text.strip():
        raise FlowOptionError(f"llm_batch(): prompt {number} is empty. Nothing was submitted")
    if session.payloads.secret_in(text):
        raise FlowOptionError(
            f"llm_batch(): prompt {number} holds a secret that Airflow masks; it would lie in clear in the file of "
            f"prompts. Nothing was submitted"
        )
    return text


def _collect(
    session: Session,
    name: str,
    batch: ProviderBatch,
    output_type: Any,
    count: int,
    rules: MapRules,
    paid: BatchBudget,
    batch_id: str,
) -> Ran:
    """Write the answers in the order of the prompts; they come in any."""
    tokens, untold = [0, 0], False
    cost: Decimal | None = Decimal(0)
    places = array("q", [-1]) * count
    with tempfile.TemporaryFile() as lines:
        for row in batch.rows(batch_id, output_type):
            if not 0 <= row.index < count:
                continue
            tokens = [tokens[0] + row.tokens_in, tokens[1] + row.tokens_out]
            cost = None if cost is None or row.cost is None else cost + row.cost
            untold |= row.cost is None and not row.tokens_in + row.tokens_out
            places[row.index] = lines.seek(0, 2)
            lines.write(json.dumps([row.value, row.error]).encode() + b"\n")
        model = batch.model_id or ""
        usage = Usage(model, batch_id, tokens_in=tokens[0], tokens_out=tokens[1], cost=cost)
        paid.answered(usage, untold=untold)
        manifest = _written(session, name, places, lines, rules)
    if cost is None:
        say_unknown(f"{model} (in a batch)")
    return Ran(manifest, usage)


def _written(session: Session, name: str, places: Sequence[int], lines: BinaryIO, rules: MapRules) -> ArtifactRef:
    writer, failed, log = ShardWriter(session, name), 0, session.services.host.log
    named: list[str] = []
    try:
        for number, place in enumerate(places):
            value, error = None, "the provider said nothing about it"
            if place >= 0:
                lines.seek(place)
                value, error = json.loads(lines.readline())
            if error is not None:
                failed += 1
                if len(named) < MOST_NAMED:
                    named.append(f"prompt {number}: {str(error)[:200]}")
                    log(session.services.host.redact(f"aiflow: {name}: {named[-1]}"), warning=True)
            writer.write(value if error is None else None)
        if failed and (not rules.tolerant or rules.too_many(failed, len(places))):
            raise ItemsFailedError(
                f"'{name}': {failed:,} of {len(places):,} prompts have no answer, on_item_error="
                f"{rules.on_item_error}: {'; '.join(named)}. The batch is paid for and not submitted again; with "
                "another on_item_error= the next attempt takes its answers"
            )
        return writer.close(failed)
    finally:
        writer.drop()
