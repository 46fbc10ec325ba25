"""What is the same thing: no two different ones may share an address."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_aiflow.durable.identity import (
    EffectId,
    ExecutionId,
    Scope,
    digest,
    effect_namespace,
    idempotency_key,
    own_namespace,
    step_key,
)

part = st.one_of(st.text(max_size=6), st.binary(max_size=6), st.integers(-300, 300))
parts = st.lists(part, max_size=4).map(tuple)


@given(parts, parts)
def test_two_tuples_share_a_digest_only_if_they_are_equal(
    left: tuple[bytes | str | int, ...], right: tuple[bytes | str | int, ...]
) -> None:
    same = len(left) == len(right) and all(type(a) is type(b) and a == b for a, b in zip(left, right, strict=True))
    assert (digest(*left) == digest(*right)) is same


def test_a_step_is_addressed_by_unit_name_fingerprint_and_occurrence() -> None:
    print_, other = b"f" * 32, b"g" * 32
    keys = [
        step_key((), "a", print_, 0),
        step_key((), "a", print_, 1),
        step_key((), "a", other, 0),
        step_key((), "b", print_, 0),
        step_key(("a",), "b", print_, 0),
        step_key(("a", "b"), "c", print_, 0),
        step_key(("a/b",), "c", print_, 0),
        step_key(("a",), "bc", print_, 0),
    ]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}


EXECUTIONS = [
    ExecutionId("d", "r", "t"),
    ExecutionId("d/r", "t", "x"),
    ExecutionId("d", "r/t", "x"),
    ExecutionId("d_r", "t", "x"),
    ExecutionId("d%2Fr", "t", "x"),
    ExecutionId("..", "../..", "t"),
]
SCOPES: list[Scope] = ["run", "generation"]


@pytest.mark.parametrize(("left", "right"), list(combinations(EXECUTIONS, 2)))
def test_no_two_executions_share_a_namespace(left: ExecutionId, right: ExecutionId) -> None:
    """C49: ids that look alike after cleaning are two."""
    for scope in SCOPES:
        assert effect_namespace(scope, left, 1) != effect_namespace(scope, right, 1)
    assert own_namespace(left) != own_namespace(right)


def test_what_a_scope_holds() -> None:
    one = ExecutionId("d", "r", "t", 0)
    other_task, other_run = ExecutionId("d", "r", "u"), ExecutionId("d", "s", "t")
    assert effect_namespace("dag", one, 1) == effect_namespace("dag", other_run, 2)
    assert effect_namespace("run", one, 1) == effect_namespace("run", other_task, 2)
    assert effect_namespace("run", one, 1) != effect_namespace("run", other_run, 1)
    assert effect_namespace("generation", one, 1) != effect_namespace("generation", one, 2)
    assert effect_namespace("global", one, 1) == effect_namespace("global", ExecutionId("x", "y", "z"), 5)


def test_a_map_index_is_in_no_namespace() -> None:
    one, sibling = ExecutionId("d", "r", "t", 0), ExecutionId("d", "r", "t", 7)
    for scope in ("dag", "run", "global", "generation"):
        assert effect_namespace(scope, one, 1) == effect_namespace(scope, sibling, 1)


def test_our_own_keys_meet_no_business_key() -> None:
    one = ExecutionId("d", "r", "t")
    assert own_namespace(one) not in {
        effect_namespace(scope, one, 1) for scope in ("dag", "run", "global", "generation")
    }


def test_only_a_wished_repeat_changes_the_key_for_the_target() -> None:
    charge, receipt = EffectId("dag:d", "charge", "4711"), EffectId("dag:d", "receipt", "4711")
    assert idempotency_key(charge, 0) == idempotency_key(EffectId("dag:d", "charge", "4711"), 0)
    assert len({idempotency_key(charge, 0), idempotency_key(charge, 1), idempotency_key(receipt, 0)}) == 3
    assert idempotency_key(charge, 0).startswith("af_")
