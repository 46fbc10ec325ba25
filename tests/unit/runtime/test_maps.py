"""Maps: each item a unit, in list order, whatever the workers' order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import FlowOptionError, ModelOutputError, PayloadEncodeError
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask, ScriptedModels, flow

RAN: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def square(n: int) -> int:
    RAN.append(n)
    return n * n


BARRIER = threading.Barrier(2)


def meet(n: int) -> int:
    BARRIER.wait(20)
    return n * 10


def test_results_are_in_the_order_of_the_items_and_two_are_in_hand_at_once() -> None:
    with flow() as f:
        assert f.map("meet", meet, [1, 2, 3, 4], max_workers=2) == [10, 20, 30, 40]


def test_a_shifted_list_runs_only_what_is_new() -> None:
    task = DurableTask()
    task.run(lambda f: f.map("square", square, [1, 2, 3]))
    assert task.run(lambda f: f.map("square", square, [9, 1, 2, 3])) == [81, 1, 4, 9]
    assert sorted(map(int, map(str, RAN))) == [1, 2, 3, 9]


def test_duplicates_are_two_units() -> None:
    task = DurableTask()
    assert task.run(lambda f: f.map("square", square, [2, 2])) == [4, 4]
    assert task.run(lambda f: f.map("square", square, [2, 2])) == [4, 4]
    assert RAN == [2, 2]


def outer(n: int) -> int:
    RAN.append(("outer", n))
    return current_flow().step("square", square, n)


def test_an_item_that_makes_flow_calls_is_not_recorded_itself() -> None:
    task = DurableTask()
    assert task.run(lambda f: f.map("outer", outer, [1, 2], max_workers=1)) == [1, 4]
    assert task.run(lambda f: f.map("outer", outer, [1, 2], max_workers=1)) == [1, 4]
    assert RAN == [("outer", 1), 1, ("outer", 2), 2, ("outer", 1), ("outer", 2)]


def test_the_first_failure_in_list_order_is_raised_and_the_rest_is_kept() -> None:
    task = DurableTask()

    def fragile(n: int) -> int:
        if n == 2 and len(RAN) < 2:
            RAN.append("boom")
            raise ValueError("two")
        return square(n)

    with pytest.raises(ValueError, match="two"):
        task.run(lambda f: f.map("fragile", fragile, [1, 2, 3, 4], max_workers=1, item_key=str))
    before = list(RAN)
    assert task.run(lambda f: f.map("fragile", fragile, [1, 2, 3, 4], max_workers=1, item_key=str)) == [1, 4, 9, 16]
    assert RAN.count(1) == 1
    assert before[:2] == [1, "boom"]


def fail(n: int) -> int:
    raise ValueError(f"not {n}")


def test_a_generator_is_read_as_it_is_needed() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for n in range(1000):
            read.append(n)
            yield n

    with flow() as f, pytest.raises(ValueError, match="not 0"):
        f.map("fail", fail, items(), max_workers=2)
    assert len(read) < 20


def test_llm_map_asks_once_for_each_prompt() -> None:
    models = ScriptedModels(lambda request: request.prompt.upper())
    task = DurableTask(models=models)
    for _ in range(2):
        assert task.run(lambda f: f.llm_map("page", ["a", "b", "c"])) == ["A", "B", "C"]
    assert sorted(r.prompt for r in models.requests) == ["a", "b", "c"]


def test_spent_counts_over_attempts_and_replays_count_nothing() -> None:
    """C45: cost is the sum over tries."""
    models = ScriptedModels()
    task = DurableTask(models=models)

    def body(f: Flow) -> tuple[int, int]:
        f.llm("one", "a b c")
        f.llm("two", "d e")
        return f.spent.calls, f.spent.tokens_in

    assert task.run(body) == (2, 5)
    assert task.run(body) == (2, 5)
    assert len(models.requests) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_workers": 0}, "max_workers must be a whole number from 1, got 0"),
        ({"max_item_attempts": True}, "max_item_attempts must be a whole number from 1"),
        ({"batch_commit": 0}, "batch_commit must be a whole number from 1, got 0"),
        ({"flush_interval": 61}, "flush_interval must be 0 to 60 seconds, got 61"),
        ({"on_item_error": "ignore"}, "on_item_error must be 'fail', 'skip' or the share"),
        ({"on_item_error": 1.5}, "on_item_error must be 'fail', 'skip' or the share"),
        ({"on_item_error": True}, "on_item_error must be 'fail', 'skip' or the share"),
        ({"results": "parquet"}, "results must be 'list', 'shards' or 'none', got 'parquet'"),
    ],
)
def test_wrong_options(options: dict[str, object], words: str) -> None:
    with flow() as f, pytest.raises(FlowOptionError) as caught:
        f.map("square", square, [1], **options)  # type: ignore[call-overload]
    assert words in str(caught.value)


@pytest.mark.parametrize("reuse", [0, -1, "a month", True])
def test_a_wrong_age_is_refused_before_anything_is_asked(reuse: object) -> None:
    models = ScriptedModels()
    with flow(models=models) as f:
        with pytest.raises(FlowOptionError, match="reuse must be"):
            f.llm("x", "p", reuse=reuse)  # type: ignore[arg-type]
        with pytest.raises(FlowOptionError, match="reuse must be"):
            f.llm_map("x", ["p"], reuse=reuse)
        with pytest.raises(FlowOptionError, match="reuse must be"):
            f.map("x", square, [1], reuse=reuse)  # type: ignore[call-overload]
        with pytest.raises(FlowOptionError, match="reuse must be"):
            f.step("x", square, 1, reuse=reuse)  # type: ignore[arg-type]
    assert models.requests == []


def test_an_answer_with_u0000_is_exact() -> None:
    """C47."""
    models = ScriptedModels(lambda _request: "ok\u0000tail")
    task = DurableTask(models=models)
    for _ in range(2):
        assert task.run(lambda f: f.llm("x", "p")) == "ok\u0000tail"
    assert len(models.requests) == 1


def test_an_answer_that_does_not_fit_was_paid_all_the_same() -> None:
    paid = Usage(model="m", tokens_in=7, tokens_out=2)

    def unfit(_request: LlmRequest) -> str:
        raise ModelOutputError("does not fit", usage=paid)

    task = DurableTask(models=ScriptedModels(unfit))
    with open_flow(task.attempt(), task.services) as f:
        with pytest.raises(ModelOutputError):
            f.llm("x", "p")
        assert (f.spent.calls, f.spent.tokens_in) == (1, 7)
    assert any("paid, no fit answer" in line for line in task.host.warnings)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("answer", ["half \ud83d", "key sk-secret"])
def test_an_answer_that_is_not_recorded_was_paid_all_the_same(answer: str, mapped: bool) -> None:
    """C45: what can't be stored, and what holds a secret, is paid for again by the next attempt: the sum is of both."""
    answers = [answer, "ok"]
    task = DurableTask(models=ScriptedModels(lambda _request: answers.pop(0)), secrets=("sk-secret",))

    def body(f: Flow) -> int:
        if mapped:
            f.llm_map("x", ["p"])
        else:
            f.llm("x", "p")
        return f.spent.calls

    with contextlib.suppress(PayloadEncodeError):
        assert task.run(body) == 1
    assert task.run(body) == 2
    assert task.run(body) == 2
