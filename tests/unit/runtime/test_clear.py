"""What a retry and a clear do to a task's steps and effects, in memory; in a real Airflow it is tests/airflow's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from airflow_aiflow.durable.attempt import OnClear, digest_upstream
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptParked, AttemptSuperseded, EffectInDoubtError
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


# --- which button it was decides nothing about an effect ----------------------------------------------------------

OUTSIDE: list[str] = []
IN_HAND: list[Callable[[], None]] = []


@pytest.fixture(autouse=True)
def _nothing_outside() -> None:
    OUTSIDE.clear()
    IN_HAND.clear()


def charge(order: str) -> str:
    OUTSIDE.append(order)
    for meanwhile in IN_HAND:
        meanwhile()
    return f"charged {order}"


def lose(order: str) -> str:
    OUTSIDE.append(order)
    raise ConnectionResetError("the reply was lost")


def clear_it(task: DurableTask) -> None:
    task.cleared()


def clear_from_above(task: DurableTask) -> None:
    """The run, or what is above with its downstream: what is above has run again when this task does."""
    task.cleared()
    task.upstream_digest = digest_upstream([("above", -1, float(len(task.host.lines)))])


def clear_while_running(task: DurableTask) -> None:
    """Airflow ends the process and grows the clear number alone."""
    task._next = replace(task._next, clear_number=task._next.clear_number + 1)


BUTTONS: dict[str, Callable[[DurableTask], None]] = {
    "retry": lambda task: None,
    "clear the task, or what failed": clear_it,
    "clear the run, or from above": clear_from_above,
    "clear while running": clear_while_running,
    "delete and trigger again": DurableTask.made_again,
}


def charging(fn: Callable[[str], str], *, then: BaseException | None = None) -> Callable[[Flow], str]:
    def body(f: Flow) -> str:
        done = f.effect("charge", fn, "4711", key="4711", on_in_doubt="hold", identity="key")
        if then is not None:
            raise then
        return done

    return body


@pytest.mark.parametrize("button", BUTTONS)
@pytest.mark.parametrize("end", ["heard success", "success that nobody heard of", "marked success", "failed", "killed"])
def test_no_button_repeats_a_done_effect(button: str, end: str) -> None:
    """C13: whoever starts the task again, and whatever its first end was."""
    task = DurableTask()
    task.hears = end == "heard success"
    # A task that a person marks is ended by Airflow's signal, whatever the mark says.
    ends: dict[str, BaseException] = {
        "failed": ValueError(),
        "killed": KeyboardInterrupt(),
        "marked success": SystemExit(),
    }
    with contextlib.suppress(ValueError, KeyboardInterrupt, SystemExit):
        task.run(charging(charge, then=ends.get(end)))
    for _ in range(2):
        BUTTONS[button](task)
        assert task.run(charging(charge)) == "charged 4711"
    assert OUTSIDE == ["4711"]


@pytest.mark.parametrize("button", BUTTONS)
def test_no_button_sends_what_is_in_doubt(button: str) -> None:
    """C13: its outcome is unknown before and after; a person's word ends that, whichever button came first."""
    task = DurableTask()
    with pytest.raises(EffectInDoubtError):
        task.run(charging(lose))
    for _ in range(2):
        BUTTONS[button](task)
        with pytest.raises(EffectInDoubtError, match="Nothing was sent now"):
            task.run(charging(charge))
    assert OUTSIDE == ["4711"]
    assert task.inbox.resolve(1, "happened", by="ann").counts
    BUTTONS[button](task)
    assert task.run(charging(charge)) is None
    assert OUTSIDE == ["4711"]


@pytest.mark.parametrize("button", BUTTONS)
def test_no_button_sends_what_is_in_flight(button: str) -> None:
    """C13: the next attempt comes while the call is out; it sends nothing, and the late outcome is found."""
    task = DurableTask(settings=FlowSettings(handover=0.001))

    def meanwhile() -> None:
        IN_HAND.clear()
        BUTTONS[button](task)
        with ThreadPoolExecutor(1) as elsewhere, pytest.raises((AttemptParked, EffectInDoubtError)):
            elsewhere.submit(task.run, charging(charge)).result()

    IN_HAND.append(meanwhile)
    with pytest.raises(AttemptSuperseded):
        task.run(charging(charge))
    assert task.run(charging(charge)) == "charged 4711"
    assert OUTSIDE == ["4711"]
