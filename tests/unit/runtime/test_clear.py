"""What a retry and a clear do to a task's steps and effects, in memory; in a real Airflow it is tests/airflow's."""

from __future__ import annotations

import pytest

from airflow_aiflow.durable.attempt import OnClear, digest_upstream
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask

RAN_AGAIN = digest_upstream([("above", -1, 2.0)])


class Counted:
    """A body with one step and one effect, each counted outside."""

    def __init__(self, *, fail: bool = False) -> None:
        self.steps: list[str] = []
        self.sent: list[str] = []
        self.fail = fail

    def __call__(self, f: Flow) -> tuple[int, int]:
        f.step("read", self.read, "a", cache_key="a")
        f.effect("mail", send, self.name, key="k", identity="key")
        if self.fail:
            raise ValueError("the code's own error")
        return f.attempt, f.generation

    def read(self, text: str) -> str:
        self.steps.append(text)
        return text

    @property
    def name(self) -> str:
        BODIES[str(id(self))] = self
        return str(id(self))


BODIES: dict[str, Counted] = {}


def send(name: str) -> str:
    BODIES[name].sent.append(name)
    return "sent"


@pytest.mark.parametrize(
    ("word", "above", "generation"),
    [
        ("auto", "same", 2),
        ("auto", "ran again", 1),
        ("auto", "unreadable", 1),
        ("resume", "same", 1),
        ("fresh", "ran again", 2),
        ("fresh", "unreadable", 2),
    ],
)
def test_a_cleared_success(word: OnClear, above: str, generation: int) -> None:
    task, body = DurableTask(on_clear=word), Counted()
    task.run(body)
    task.cleared()
    task.upstream_digest = {"same": task.upstream_digest, "ran again": RAN_AGAIN, "unreadable": None}[above]
    assert task.run(body) == (2, generation)
    assert len(body.steps) == generation, "a new generation computes again"
    assert len(body.sent) == 1, "an effect never depends on it"
    assert any(line.startswith("aiflow: cleared") for line in task.host.lines), "the log says why"


def test_a_cleared_failure_resumes() -> None:
    task, body = DurableTask(), Counted(fail=True)
    with pytest.raises(ValueError, match="own"):
        task.run(body)
    task.cleared()
    body.fail = False
    assert task.run(body) == (2, 1)
    assert (len(body.steps), len(body.sent)) == (1, 1)


def test_a_success_that_airflow_never_heard_of_replays() -> None:
    """Killed between our record and Airflow's word: nobody saw a success, nobody can have wished for another."""
    task, body = DurableTask(), Counted()
    task.hears = False
    task.run(body)
    task.cleared()
    assert task.run(body) == (2, 1)
    assert len(body.steps) == 1


def test_a_retry_of_a_fresh_start_goes_on_in_its_generation() -> None:
    task, body = DurableTask(), Counted()
    task.run(body)
    task.cleared()
    body.fail = True
    with pytest.raises(ValueError, match="own"):
        task.run(body)
    body.fail = False
    assert task.run(body) == (3, 2)
    assert len(body.steps) == 2


def test_a_second_clear_of_a_fresh_start_that_failed_resumes_it() -> None:
    task, body = DurableTask(), Counted()
    task.run(body)
    task.cleared()
    body.fail = True
    with pytest.raises(ValueError, match="own"):
        task.run(body)
    task.cleared()
    body.fail = False
    assert task.run(body) == (3, 2)
    assert len(body.steps) == 2


def test_a_reschedule_after_a_clear_keeps_the_generation() -> None:
    task, body = DurableTask(), Counted()
    task.run(body)
    task.cleared()
    task.run(body)
    task.same_again()
    assert task.run(body) == (2, 2)
    assert len(body.steps) == 2


@pytest.mark.parametrize("word", ["auto", "resume", "fresh"])
def test_a_run_made_again_starts_anew_and_keeps_its_effects(word: OnClear) -> None:
    task, body = DurableTask(on_clear=word), Counted()
    task.run(body)
    task.made_again()
    assert task.run(body) == (2, 2)
    assert (len(body.steps), len(body.sent)) == (2, 1)
