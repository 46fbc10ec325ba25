"""What an author says of a task is kept with its execution, as the last attempt that said something had it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from airflow_aiflow.durable.sign import Sign
from tests.contract.ledger_world import TTL, World, an_attempt, an_execution, take


def test_the_labels_of_a_first_attempt_are_kept(world: World) -> None:
    labels = {"team": "legal", "costs": "", "straße": "a=b, 'c'"}
    taken = take(world.ledger, replace(an_attempt(an_execution()), labels=labels))
    assert world.look(taken.lease.execution_pk).labels == labels


@pytest.mark.parametrize(
    ("later", "kept"),
    [
        ({"team": "tax", "year": "2026"}, {"team": "tax", "year": "2026"}),
        ({"region": "north"}, {"region": "north"}),
        ({}, {"team": "legal", "region": "south"}),
    ],
)
def test_a_later_attempt_puts_its_own_in_their_place(world: World, later: Mapping[str, str], kept: object) -> None:
    attempt = replace(an_attempt(an_execution()), labels={"team": "legal", "region": "south"})
    taken = take(world.ledger, attempt)
    take(world.ledger, replace(an_attempt(attempt.execution, 2), labels=later))
    assert world.look(taken.lease.execution_pk).labels == kept


def test_an_attempt_that_takes_nothing_over_leaves_the_labels_alone(world: World) -> None:
    attempt = replace(an_attempt(an_execution()), labels={"team": "legal"})
    taken = take(world.ledger, attempt)
    late = replace(an_attempt(attempt.execution, 2), labels={"team": "tax"})
    nothing = world.ledger.take_over(late, sign=Sign.RETRY, seen=7, new_generation=False, ttl=TTL)
    assert nothing is None
    assert world.look(taken.lease.execution_pk).labels == {"team": "legal"}


def test_labels_are_each_task_s_own(world: World) -> None:
    first = take(world.ledger, replace(an_attempt(an_execution()), labels={"team": "legal"}))
    second = take(world.ledger, an_attempt(an_execution()))
    assert world.look(first.lease.execution_pk).labels == {"team": "legal"}
    assert world.look(second.lease.execution_pk).labels == {}
