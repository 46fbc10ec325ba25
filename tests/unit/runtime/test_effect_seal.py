"""A result of an effect is believed by its seal, or by a person's decision on that very call."""

from __future__ import annotations

import pytest

from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import EffectInDoubtError, SealError
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask


def lose(to: str) -> str:
    raise ConnectionResetError(f"the reply to {to} was lost")


def send(to: str) -> str:
    return f"sent to {to}"


def body(flow: Flow) -> str:
    return flow.effect("mail", lose, "a", key="k", on_in_doubt="hold")


def test_a_person_s_result_needs_no_seal_and_is_given() -> None:
    task = DurableTask()
    with pytest.raises(EffectInDoubtError):
        task.run(body)
    [waits] = task.inbox.waiting()
    assert task.inbox.resolve(waits.number, "happened", by="ann", result=Stored(inline=b'"given"')).counts
    assert task.run(body) == "given"


def test_a_result_without_a_seal_and_without_a_decision_is_refused_by_name() -> None:
    task = DurableTask()
    task.run(lambda flow: flow.effect("mail", send, "a", key="k"))
    assert isinstance(task.ledger, MemoryLedger)
    row = task.ledger._tables.effects[EffectId("dag:dag", "mail", "k")]
    row.current.result, row.current.seal = Stored(inline=b'"forged"'), None
    with pytest.raises(SealError, match=r"'mail' \(#1\) has no seal, and nobody decided"):
        task.run(lambda flow: flow.effect("mail", send, "a", key="k"))
