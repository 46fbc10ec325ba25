"""Turn the domain's values into the parameters of statements."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg.types.json import Jsonb

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.effect import IntentWrite
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.inbox import QuestionWrite
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.storage.connections import Params
from airflow_aiflow.storage.text import effect_identity, exact, execution_identity, shown


def lease_params(lease: Lease) -> dict[str, object]:
    """Give a lease's."""
    return {"execution_id": lease.execution_pk, "fence": lease.fence}


def payload(name: str, stored: Stored | None) -> dict[str, object]:
    """
    Give the two of a payload's two columns.

    :param name: of the column that holds it inline.
    :param stored: the payload.
    """
    return {
        name: None if stored is None else stored.inline,
        f"{name}_sha256": None if stored is None else stored.sha256,
    }


def attempt_params(attempt: Attempt, sign: Sign, ttl: float) -> dict[str, object]:
    """Give those of a take-over, but for what stands before."""
    execution, counters = attempt.execution, attempt.counters
    return {
        "identity": execution_identity(execution),
        "dag_id": execution.dag_id,
        "run_id": execution.run_id,
        "task_id": execution.task_id,
        "map_index": execution.map_index,
        "ti_id": counters.ti_id,
        "try_number": counters.try_number,
        "max_tries": counters.max_tries,
        "retries": counters.retries,
        "clear_number": counters.clear_number,
        "run_after": counters.run_after,
        "sign": sign.value,
        "owner": Jsonb(attempt.owner.to_plain()),
        "upstream_digest": attempt.upstream_digest,
        "on_clear": attempt.on_clear,
        "recovery": attempt.recovery,
        "max_recoveries": attempt.max_recoveries,
        "ttl": ttl,
    }


def label_params(lease: Lease, labels: Mapping[str, str]) -> dict[str, object]:
    """Give those of an attempt's labels."""
    return lease_params(lease) | {"names": list(labels), "values": list(labels.values())}


def intent_params(lease: Lease, intent: IntentWrite) -> Params:
    """Give an intent's."""
    effect = intent.effect
    return (
        lease_params(lease)
        | payload("request", intent.request)
        | {
            "identity": effect_identity(effect),
            "namespace": effect.namespace,
            "name": effect.name,
            "key": effect.key,
            "seen": intent.seen,
            "intent_id": intent.intent_id,
            "generation": intent.generation,
            "request_fp": intent.request_fp,
            "timeout": intent.timeout,
        }
    )


def question_params(question: QuestionWrite) -> dict[str, object]:
    """Give a question's; what only people read is made storable."""
    effect = question.effect
    if effect is not None:
        effect_identity(effect)
    return {
        "identity": question.bound_to,
        "kind": question.kind,
        "name": exact(question.name, "name of a question"),
        "namespace": None if effect is None else effect.namespace,
        "effect_name": None if effect is None else effect.name,
        "key": None if effect is None else effect.key,
        "intent_id": question.intent_id,
        "subject": shown(question.subject),
        "body": shown(question.body),
        "options": [exact(option, "option of a question") for option in question.options],
        "assigned_users": [shown(user) for user in question.assigned_users],
        "timeout": question.timeout,
    }
