"""Steps: what is recorded is not run again, and by meaning, not by position."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.exceptions import PayloadEncodeError, SealError, StepInputError, StepTimeoutError
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, flow


class Boom(Exception):
    """Stand for the code's own error."""


class Counter:
    """Count calls by argument."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def __call__(self, value: object) -> object:
        self.calls.append(value)
        return value


CALLS: list[object] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def called(text: str) -> str:
    CALLS.append(text)
    return text


def double(value: int) -> int:
    CALLS.append(value)
    return value * 2


def test_a_recorded_step_is_not_run_again() -> None:
    task = DurableTask()

    def body(f: Flow) -> int:
        first = f.step("double", double, 4)
        if f.attempt == 1:
            raise Boom
        return first + f.step("double", double, 5)

    with pytest.raises(Boom):
        task.run(body)
    assert task.run(body) == 18
    assert CALLS == [4, 5]


def test_reordered_and_inserted_steps_keep_their_own_results() -> None:
    task = DurableTask()

    def first(f: Flow) -> None:
        assert [f.step("double", double, n) for n in (1, 2, 3)] == [2, 4, 6]
        raise Boom

    with pytest.raises(Boom):
        task.run(first)
    assert task.run(lambda f: [f.step("double", double, n) for n in (3, 9, 1, 2)]) == [6, 18, 2, 4]
    assert CALLS == [1, 2, 3, 9]


def test_equal_calls_are_told_apart_and_a_failed_one_shifts_nothing() -> None:
    task = DurableTask()
    answers: Iterator[str | Boom] = iter(["a", Boom(), "b"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def body(f: Flow) -> list[str]:
        got = [f.step("ask", ask, cache_key=1)]
        try:
            got.append(f.step("ask", ask, cache_key=1))
        except Boom:
            got.append(f.step("ask", ask, cache_key=1))
        return got

    ran = task.run(body)
    assert ran == ["a", "b"]
    # On the second run the failing call is not there: both answers must be found under the same numbers.
    assert task.run(lambda f: [f.step("ask", ask, cache_key=1), f.step("ask", ask, cache_key=1)]) == ["a", "b"]


def test_a_changed_argument_runs_live() -> None:
    task = DurableTask()
    task.run(lambda f: f.step("double", double, 1))
    assert task.run(lambda f: f.step("double", double, 2)) == 4
    assert CALLS == [1, 2]


def test_version_and_cache_key() -> None:
    task = DurableTask()
    task.run(lambda f: f.step("double", double, 1, version=1))
    task.run(lambda f: f.step("double", double, 1, version=2))
    assert CALLS == [1, 1]
    lock = threading.Lock()

    def locked(_lock: object) -> str:
        CALLS.append("locked")
        return "x"

    task.run(lambda f: f.step("locked", locked, lock, cache_key="one"))
    task.run(lambda f: f.step("locked", locked, lock, cache_key="one"))
    assert CALLS == [1, 1, "locked"]


def test_what_a_lambda_captures_counts() -> None:
    task = DurableTask()

    def body(text: str) -> Callable[[Flow], str]:
        return lambda f: f.step("upper", lambda: called(text).upper())

    assert [task.run(body(text)) for text in ("old", "new", "new")] == ["OLD", "NEW", "NEW"]
    assert CALLS == ["old", "new"]


class Client:
    """Stand for a client object."""


def test_a_captured_client_is_refused_by_name_before_anything_runs() -> None:
    client, text = Client(), "x"
    with flow() as f, pytest.raises(StepInputError) as caught:
        f.step("x", lambda: (client, double(len(text))))
    assert "step 'x' captures 'client' (Client), which has no canonical form" in str(caught.value)
    assert "Pass plain values, create the client inside, or give cache_key=" in str(caught.value)
    assert CALLS == []


def test_an_unreadable_argument_shares_no_row_with_another_prompt() -> None:
    """C35: any part that fails means no key."""
    with flow() as f:
        for prompt in ("a", "b"):
            with pytest.raises(StepInputError):
                f.step("ask", lambda client, text: text, Client(), prompt)


@dataclasses.dataclass
class Note:
    """Be a class of the author's."""

    page: int
    price: Decimal


def make_note() -> Note:
    CALLS.append("note")
    return Note(3, Decimal("1.10"))


def test_try_one_equals_try_two() -> None:
    """C32: type and value."""
    task = DurableTask()
    values: list[object] = [
        {1: "a"},
        (1, 2),
        {("a", "b"): 0.9},
        2**63,
        -0.0,
        Decimal("1.10"),
        float("inf"),
        "F\u0000o",
        {"\u0000": 1},
    ]
    for index, value in enumerate(values):
        count = Counter()

        def body(f: Flow, index: int = index, value: object = value, count: Counter = count) -> object:
            return f.step(f"value{index}", count, value, cache_key=index)

        first, second = task.run(body), task.run(body)
        assert type(first) is type(second) is type(value)
        assert repr(first) == repr(second) == repr(value)
        assert len(count.calls) == 1
    assert task.run(lambda f: f.step("note", make_note)) == Note(3, Decimal("1.10"))
    assert task.run(lambda f: f.step("note", make_note)) == Note(3, Decimal("1.10"))
    assert CALLS == ["note"]


def test_a_large_result_goes_to_the_store_and_comes_back() -> None:
    task = DurableTask()

    def big() -> str:
        CALLS.append("big")
        return "x" * 100_000

    assert task.run(lambda f: f.step("big", big)) == "x" * 100_000
    assert task.run(lambda f: f.step("big", big)) == "x" * 100_000
    assert CALLS == ["big"]


def test_a_result_that_cannot_be_stored_is_named_by_its_path_and_kept(tmp_path: object) -> None:
    from pathlib import Path

    from airflow_aiflow.durable.settings import FlowSettings

    assert isinstance(tmp_path, Path)
    task = DurableTask(settings=FlowSettings(spool_dir=tmp_path))
    with pytest.raises(PayloadEncodeError) as caught:
        task.run(lambda f: f.step("bad", lambda: {"a": [{"score": Client()}]}))
    assert caught.value.path == "a[0].score"
    (kept,) = tmp_path.glob("*.kept.txt")
    assert "Client object" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_secret_is_not_recorded() -> None:
    task = DurableTask(secrets=("sk-test-123",))
    for _ in range(2):
        assert task.run(lambda f: f.step("token", lambda: {"key": called("Bearer sk-test-123")}))
    assert len(CALLS) == 2
    assert list(task.ledger.recorded(Lease(1, 2), 1).steps) == []
    assert any("holds a secret" in line for line in task.host.warnings)


def test_an_edited_row_is_refused_by_name() -> None:
    task = DurableTask()
    task.run(lambda f: f.step("double", double, 1))
    assert isinstance(task.ledger, MemoryLedger)
    original = task.ledger.recorded

    def forged(lease: object, generation: int) -> object:
        recorded = original(lease, generation)  # type: ignore[arg-type]
        steps = [dataclasses.replace(s, result=dataclasses.replace(s.result, inline=b"666")) for s in recorded.steps]
        return dataclasses.replace(recorded, steps=steps)

    task.ledger.recorded = forged  # type: ignore[method-assign, assignment]
    with pytest.raises(SealError, match="the record of step 'double'"):
        task.run(lambda f: f.step("double", double, 1))


def test_exceptions_pass_unchanged_with_a_note() -> None:
    error = Boom("mine")

    def fail() -> None:
        raise error

    with pytest.raises(Boom) as caught:
        DurableTask().run(lambda f: f.step("fail", fail, cache_key=1))
    assert caught.value is error
    assert any("step 'fail'" in note for note in error.__notes__)


def test_retries_inside_one_attempt() -> None:
    task = DurableTask()
    tries: Iterator[str | Boom] = iter([Boom(), Boom(), "ok"])

    def flaky() -> str:
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert task.run(lambda f: f.step("flaky", flaky, retries=2, cache_key=1)) == "ok"


def test_a_step_ends_at_its_timeout() -> None:
    never = threading.Event()
    task = DurableTask(clock=SystemClock())
    with pytest.raises(StepTimeoutError, match=re.escape("step 'hang' did not end within 0.05 s")):
        task.run(lambda f: f.step("hang", never.wait, timeout=0.05, cache_key=1))


def test_nested_steps_are_units_of_their_own() -> None:
    task = DurableTask()

    def outer(n: int) -> int:
        from airflow_aiflow.runtime.current import current_flow

        return current_flow().step("double", double, 1) + n

    def body(f: Flow) -> list[int]:
        return [f.step("outer", outer, 10), f.step("outer", outer, 20), f.step("double", double, 1)]

    assert task.run(body) == [12, 22, 2]
    assert CALLS == [1, 1, 1]
    assert task.run(body) == [12, 22, 2]
    assert CALLS == [1, 1, 1]


def test_the_log_has_one_line_a_step_and_a_summary_at_both_ends() -> None:
    task = DurableTask()
    task.run(lambda f: f.step("double", double, 1))
    task.host.lines.clear()
    task.run(lambda f: (f.step("double", double, 1), f.step("double", double, 2)))
    assert task.host.lines[0].startswith("aiflow: resuming attempt 2, generation 1: 1 step recorded")
    assert re.search(r"\[ *1/1\] double +replayed", task.host.lines[1])
    assert re.search(r"\[ *2/2\] double +ran +0.0 s", task.host.lines[2])
    assert task.host.lines[-1].startswith("aiflow: done: 1 replayed, 1 ran, 0 effects")


async def coroutine() -> int:
    return 1


def test_a_coroutine_function_is_refused() -> None:
    with flow() as f, pytest.raises(TypeError, match="make the task 'async def' and await"):
        f.step("x", coroutine)  # type: ignore[unused-coroutine]


def test_a_wrong_keyword_is_told_of_the_flow() -> None:
    with pytest.raises(TypeError, match=r"Flow\.transaction\(\) got an unexpected keyword argument 'json'"):
        DurableTask().run(lambda flow: flow.transaction("insert", print, conn_id="erp", json=1))  # type: ignore[call-arg]
