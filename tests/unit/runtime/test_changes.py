"""The log says why a step ran although something like it is recorded."""

from __future__ import annotations

import re

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.fingerprint import PRINT_BYTES, canonical, short_prints
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask


def read(doc: str, words: int = 10) -> str:
    return f"{doc} {words}"


def size(text: str) -> int:
    return len(text)


def join(first: str, second: str, third: str) -> str:
    return first + second + third


def second_log(*bodies: object) -> list[str]:
    task = DurableTask()
    for body in bodies:
        task.host.lines.clear()
        task.run(body)  # type: ignore[arg-type]
    return task.host.lines


def changed(lines: list[str]) -> list[str]:
    return [found[1] for line in lines if (found := re.search(r"changed: (.*)", line)) and "steps changed" not in line]


def test_a_changed_argument_is_named() -> None:
    lines = second_log(lambda f: f.step("read", read, "a"), lambda f: f.step("read", read, "a", 12))
    assert changed(lines) == ["words", "read 1 (words)"]
    assert lines[-2] == "aiflow: 1 of 1 step changed: read 1 (words)"


def test_a_model_calls_parts_are_named() -> None:
    lines = second_log(
        lambda f: f.llm("page", "one", system_prompt="short"),
        lambda f: f.llm("page", "two", system_prompt="long", model_settings={"temperature": 0.1}),
    )
    assert changed(lines)[0] == "prompt, system prompt, settings"


def test_an_output_type_is_one_thing() -> None:
    lines = second_log(lambda f: f.llm("page", "one"), lambda f: f.llm("page", "one", output_type=list[str]))
    assert changed(lines)[0] == "output type"


def test_the_version_is_named() -> None:
    lines = second_log(lambda f: f.step("read", read, "a"), lambda f: f.step("read", read, "a", version=2))
    assert changed(lines)[0] == "version"


def test_a_new_parameter_is_no_change_of_one() -> None:
    lines = second_log(lambda f: f.step("read", read, "a"), lambda f: f.step("read", len, "a"))
    assert changed(lines)[0] == "the arguments"


def test_the_nearest_record_is_the_former_self() -> None:
    def before(f: Flow) -> None:
        f.step("join", join, "a", "b", "c")
        f.step("join", join, "x", "y", "z")

    def now(f: Flow) -> None:
        f.step("join", join, "x", "y", "9")
        f.step("join", join, "a", "8", "c")

    assert changed(second_log(before, now))[:2] == ["third", "second"]


def test_a_step_that_was_put_in_is_no_change() -> None:
    def before(f: Flow) -> None:
        for doc in "abc":
            f.step("read", read, doc)

    def now(f: Flow) -> None:
        for doc in "zabc":
            f.step("read", read, doc)

    lines = second_log(before, now)
    assert not any("steps changed" in line for line in lines), "at the end every record is in use again"
    assert lines[-1].startswith("aiflow: done: 3 replayed, 1 ran")


def test_the_summary_counts_and_names_a_few() -> None:
    docs = [f"doc {number}" for number in range(41)]

    def before(f: Flow) -> None:
        f.map("page", read, docs)

    def now(f: Flow) -> None:
        f.map("page", read, [doc + ("!" if number % 5 == 0 else "") for number, doc in enumerate(docs)], max_workers=1)

    lines = second_log(before, now)
    [summary] = [line for line in lines if "steps changed" in line]
    assert re.match(r"aiflow: 9 of 41 steps changed: page \d+ \(doc\), page ", summary)
    assert summary.endswith(", and 4 more")


def test_an_equal_call_once_more_is_no_change() -> None:
    lines = second_log(lambda f: f.step("read", read, "a"), lambda f: [f.step("read", read, "a") for _ in range(2)])
    assert changed(lines) == []


def test_a_first_run_has_nothing_to_compare() -> None:
    assert changed(second_log(lambda f: f.step("read", read, "a"))) == []


def test_a_secret_leaves_no_print_of_itself() -> None:
    """The short print of a secret is over its keyed hash: who has the row can't try texts against it."""
    task = DurableTask(secrets=("hunter2",))
    task.run(lambda f: f.step("size", size, "hunter2"))
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    [step] = task.ledger.recorded(Lease(standing.execution_pk, standing.fence), 1).steps
    assert step.prints is not None
    assert len(step.prints) == 2 * PRINT_BYTES
    assert short_prints([canonical("hunter2")]) not in step.prints
    assert short_prints([canonical(None)]) in step.prints, "the version"
