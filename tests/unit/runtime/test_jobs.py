"""Long jobs and sleeps: submitted once, attached to, waited for without a slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from airflow_aiflow import EffectContext, Flow, JobStatus
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import (
    AttemptParked,
    EffectInDoubtError,
    EffectOptionError,
    FlowOptionError,
    JobFailedError,
)
from airflow_aiflow.testing import DurableTask, ManualClock


@dataclass
class Provider:
    """Jobs as a provider keeps them; each call from outside is counted."""

    jobs: dict[str, str] = field(default_factory=dict)
    states: list[Any] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    lost_reply: bool = False
    find_raises: bool = False

    def create(self, key: str) -> str:
        self.calls.append("create")
        self.jobs[f"job-{len(self.jobs) + 1}"] = key
        if self.lost_reply:
            self.lost_reply = False
            raise ConnectionResetError("the answer was lost")
        return f"job-{len(self.jobs)}"

    def state(self) -> Any:
        self.calls.append("poll")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state


HERE = Provider()


@pytest.fixture(autouse=True)
def provider() -> Provider:
    global HERE
    HERE = Provider()
    return HERE


def submit(ctx: EffectContext, data: str) -> str:
    return HERE.create(ctx.idempotency_key)


def poll(job_id: str) -> JobStatus:
    assert job_id in HERE.jobs
    state = HERE.state()
    return state if isinstance(state, JobStatus) else JobStatus(state)


def fetch(job_id: str) -> str:
    HERE.calls.append("result")
    return f"model of {job_id}"


def find(idempotency_key: str) -> str | None:
    HERE.calls.append("find")
    if HERE.find_raises:
        raise OSError("not now")
    return next((job for job, key in HERE.jobs.items() if key == idempotency_key), None)


def cancel(job_id: str) -> None:
    HERE.calls.append(f"cancel {job_id}")


def train(**options: Any) -> Callable[[Flow], str]:
    def body(flow: Flow) -> str:
        given = {"poll": poll, "result": fetch, "key": "k", **options}
        model: str = flow.job("train", submit, "s3://data", **given)
        return model

    return body


def to_the_end(task: DurableTask, body: Callable[[Flow], Any], *, most: int = 2000) -> tuple[Any, int]:
    """Run a task as Airflow would: it comes back after each park. Gives its result and the number of parks."""
    clock = task.clock
    assert isinstance(clock, ManualClock)
    for parks in range(most):
        try:
            return task.run(body), parks
        except AttemptParked as parked:
            clock.advance(parked.delay)
            task.same_again()
    raise AssertionError(f"not done after {most} parks")


def test_a_job_of_hours_is_submitted_once_and_keeps_no_slot(provider: Provider) -> None:
    provider.states = ["queued", *["running"] * 200, "succeeded"]
    task = DurableTask()
    result, parks = to_the_end(task, train(poll_interval=timedelta(minutes=2), timeout=timedelta(hours=12)))
    assert result == "model of job-1"
    assert parks == 201
    assert provider.calls.count("create") == 1
    assert provider.calls.count("result") == 1
    assert isinstance(task.clock, ManualClock)
    assert all(wait <= 30 for wait in task.clock.waits)


def test_a_parked_job_says_what_it_waits_for(provider: Provider) -> None:
    provider.states = ["running"]
    task = DurableTask()
    with pytest.raises(AttemptParked) as parked:
        task.run(train())
    assert (parked.value.delay, parked.value.why) == (60.0, "job 'train' job-1 is running")
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    assert standing.state is ExecutionState.PAUSED


def test_short_intervals_are_waited_for_in_the_slot(provider: Provider) -> None:
    provider.states = ["running", "running", "completed"]
    task = DurableTask()
    assert task.run(train(poll_interval=20)) == "model of job-1"
    assert isinstance(task.clock, ManualClock)
    assert task.clock.waits == [20.0, 20.0]


def test_a_done_job_costs_nothing_again(provider: Provider) -> None:
    provider.states = ["succeeded"]
    task = DurableTask()

    def body(flow: Flow) -> str:
        done = train()(flow)
        if len(provider.calls) < 4:
            provider.calls.append("later")
            raise RuntimeError("later")
        return done

    with pytest.raises(RuntimeError):
        task.run(body)
    assert task.run(body) == "model of job-1"
    assert provider.calls == ["create", "poll", "result", "later"]


def test_a_failed_result_is_fetched_again_and_nothing_else(provider: Provider) -> None:
    provider.states = ["succeeded"]

    def broken(job_id: str) -> str:
        if provider.calls.count("result") < 1:
            provider.calls.append("result")
            raise OSError("the result can't be read")
        return fetch(job_id)

    task = DurableTask()
    body = train(result=broken)
    with pytest.raises(OSError, match="can't be read"):
        task.run(body)
    assert task.run(body) == "model of job-1"
    assert provider.calls.count("create") == 1


def test_a_lost_reply_is_found_by_its_key(provider: Provider) -> None:
    provider.states, provider.lost_reply = ["succeeded"], True
    result, _ = to_the_end(DurableTask(), train(find=find))
    assert result == "model of job-1"
    assert provider.calls.count("create") == 1
    assert "find" in provider.calls


def test_a_find_that_fails_is_no_no(provider: Provider) -> None:
    provider.states, provider.lost_reply, provider.find_raises = ["succeeded"], True, True
    with pytest.raises(EffectInDoubtError):
        DurableTask().run(train(find=find, on_in_doubt="hold"))
    assert provider.calls.count("create") == 1


def test_without_find_a_lost_reply_is_in_doubt(provider: Provider) -> None:
    provider.states, provider.lost_reply = ["succeeded"], True
    task = DurableTask()
    with pytest.raises(EffectInDoubtError):
        task.run(train(on_in_doubt="hold"))
    with pytest.raises(EffectInDoubtError):
        task.run(train(on_in_doubt="hold"))
    assert provider.calls == ["create"]


def test_a_failed_job_names_the_providers_word_and_is_not_submitted_again(provider: Provider) -> None:
    provider.states = [JobStatus("expired", message="no capacity")]
    task = DurableTask()
    for _ in range(2):
        with pytest.raises(JobFailedError, match=r"job-1 ended as 'expired': no capacity.*effects release [0-9]+ "):
            task.run(train())
    assert provider.calls.count("create") == 1


def test_the_timeout_counts_from_the_submission_over_all_attempts(provider: Provider) -> None:
    provider.states = ["running"]
    task = DurableTask()
    with pytest.raises(JobFailedError, match="job-1 did not end within 600 s of its submission; it was cancelled"):
        to_the_end(task, train(timeout=600, cancel=cancel), most=12)
    assert provider.calls.count("poll") == 11
    assert provider.calls.count("cancel job-1") == 1


def test_a_job_that_ended_late_has_ended(provider: Provider) -> None:
    provider.states = ["running", "succeeded"]
    task = DurableTask()
    with pytest.raises(AttemptParked):
        task.run(train(timeout=600))
    assert isinstance(task.clock, ManualClock)
    task.clock.advance(10_000)
    assert task.run(train(timeout=600)) == "model of job-1"


def test_a_cancellation_that_fails_is_said(provider: Provider) -> None:
    provider.states = ["running"]

    def broken(job_id: str) -> None:
        raise OSError("not now")

    task = DurableTask()
    with pytest.raises(JobFailedError, match="could not be cancelled: OSError: not now"):
        to_the_end(task, train(timeout=100, cancel=broken))
    assert any("could not be cancelled" in line for line in task.host.warnings)


def test_polls_that_fail_are_repeated_and_the_job_is_not_submitted_again(provider: Provider) -> None:
    outage: list[Any] = [ConnectionResetError()] * 10
    provider.states = [*outage, "running", *outage, "succeeded"]
    result, parks = to_the_end(DurableTask(), train())
    assert result == "model of job-1"
    assert parks == 21
    assert provider.calls.count("create") == 1


def test_polls_that_never_answer_come_to_an_end(provider: Provider) -> None:
    provider.states = [ConnectionResetError("cut")]
    task = DurableTask()
    with pytest.raises(ConnectionResetError) as raised:
        to_the_end(task, train())
    assert provider.calls.count("poll") == 11
    assert "not submitted again" in raised.value.__notes__[0]
    provider.states = ["succeeded"]
    assert task.run(train()) == "model of job-1"
    assert provider.calls.count("create") == 1


def test_mistakes_of_the_author_are_raised_at_once(provider: Provider) -> None:
    provider.states = [KeyError("x")]
    with pytest.raises(TypeError, match="return JobStatus"):
        DurableTask().run(train(poll=lambda job_id: "running"))
    with pytest.raises(AttributeError):
        DurableTask(run_id="2").run(train(poll=lambda job_id: job_id.state, key="l"))


def test_a_progress_that_cannot_be_stored_costs_no_job(provider: Provider) -> None:
    provider.states = [JobStatus("running", progress=object()), "succeeded"]
    task = DurableTask()
    assert to_the_end(task, train())[0] == "model of job-1"
    assert any("progress of job 'train' can't be stored" in line for line in task.host.warnings)


def test_two_runs_share_the_job_of_a_key(provider: Provider) -> None:
    provider.states = ["succeeded"]
    first = DurableTask(run_id="one")
    second = DurableTask(run_id="two", ledger=first.ledger, clock=first.clock, store=first.store)
    assert first.run(train()) == second.run(train()) == "model of job-1"
    assert provider.calls.count("create") == 1


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"poll_interval": 0}, FlowOptionError, "poll_interval"),
        ({"timeout": -1}, FlowOptionError, "timeout"),
        ({"wait": 3}, TypeError, "unexpected keyword 'wait'"),
        ({"key": ""}, EffectOptionError, "key is empty"),
        ({"find": find, "reconcile": find}, EffectOptionError, "not both"),
        ({"poll": None}, TypeError, "not callable"),
    ],
)
def test_wrong_options_submit_nothing(
    provider: Provider, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        DurableTask().run(train(**options))
    assert provider.calls == []


def without_key(data: str) -> str:
    return HERE.create("")


def test_find_needs_a_submission_that_bears_the_key(provider: Provider) -> None:
    with pytest.raises(EffectOptionError, match="first parameter `ctx`"):
        DurableTask().run(lambda flow: flow.job("train", without_key, "a", poll=poll, result=fetch, find=find, key="k"))
    assert provider.calls == []


def test_a_submission_that_gives_no_id_is_said(provider: Provider) -> None:
    provider.states = ["succeeded"]
    with pytest.raises(JobFailedError, match="submit gave None where the job's id is expected"):
        DurableTask().run(lambda flow: flow.job("train", nothing, poll=poll, result=fetch, key="k"))


def nothing() -> Any:
    return None


# --- sleep ------------------------------------------------------------------------------------------------------------


def test_a_long_sleep_gives_the_slot_back_and_ends_once() -> None:
    task = DurableTask()
    clock = task.clock
    assert isinstance(clock, ManualClock)
    began = clock.now()

    def body(flow: Flow) -> float:
        flow.sleep("cool down", timedelta(hours=2))
        return (clock.now() - began).total_seconds()

    result, parks = to_the_end(task, body)
    assert (result, parks) == (7200.0, 1)


def test_a_sleep_goes_on_where_a_former_attempt_left_it() -> None:
    task = DurableTask()
    clock = task.clock
    assert isinstance(clock, ManualClock)
    with pytest.raises(AttemptParked) as first:
        task.run(lambda flow: flow.sleep("cool down", 100))
    assert first.value.delay == 100
    clock.advance(40)
    with pytest.raises(AttemptParked) as second:
        task.run(lambda flow: flow.sleep("cool down", 100))
    assert second.value.delay == pytest.approx(60)
    clock.advance(50)
    task.run(lambda flow: flow.sleep("cool down", 100))
    assert clock.waits[-1] == pytest.approx(10)


def test_a_sleep_that_is_over_is_not_slept_again_even_where_the_clock_is_behind() -> None:
    task = DurableTask()
    clock = task.clock
    assert isinstance(clock, ManualClock)

    def body(flow: Flow) -> bool:
        flow.sleep("cool down", 20)
        if not flow.resumed:
            raise RuntimeError
        return True

    with pytest.raises(RuntimeError):
        task.run(body)
    clock.advance(-15)
    waits = len(clock.waits)
    assert task.run(body) is True
    assert len(clock.waits) == waits


def test_two_sleeps_of_a_name_are_two() -> None:
    task = DurableTask()
    clock = task.clock
    assert isinstance(clock, ManualClock)

    def body(flow: Flow) -> None:
        for _ in range(3):
            flow.sleep("between", 10)

    task.run(body)
    assert clock.waits == pytest.approx([10.0, 10.0, 10.0])


@pytest.mark.parametrize("delay", [0, -1, "1", True, float("nan")])
def test_a_sleep_needs_a_duration(delay: Any) -> None:
    with pytest.raises(FlowOptionError, match="delay must be a timedelta"):
        DurableTask().run(lambda flow: flow.sleep("s", delay))


def in_doubt_after_submit(provider: Provider, **options: Any) -> DurableTask:
    """Lose the answer of a submission, and have a person say in the form that it happened: a form takes no id."""
    provider.lost_reply, provider.find_raises, provider.states = True, True, ["succeeded"]
    task = DurableTask()
    with pytest.raises(AttemptParked):
        task.run(train(**options))
    task.answer("It happened")
    provider.find_raises = False
    return task


def test_the_id_of_a_job_that_a_person_says_was_submitted_is_found_by_its_key(provider: Provider) -> None:
    task = in_doubt_after_submit(provider, find=find)
    assert task.run(train(find=find)) == "model of job-1"
    assert provider.calls.count("create") == 1


def test_a_find_that_comes_with_a_later_release_of_the_code_leads_to_the_job(provider: Provider) -> None:
    task = in_doubt_after_submit(provider)
    with pytest.raises(JobFailedError, match=r"ann said that it was submitted \(#1\), without the job's id.*find="):
        task.run(train())
    assert task.run(train(find=find)) == "model of job-1"
    assert provider.calls.count("create") == 1


def test_a_job_that_a_person_says_was_submitted_and_nobody_finds_is_not_submitted_again(provider: Provider) -> None:
    task = in_doubt_after_submit(provider, find=find)
    provider.jobs.clear()
    with pytest.raises(JobFailedError, match=r"find= knows no job with its key.*effects release 1 "):
        task.run(train(find=find))
    assert provider.calls.count("create") == 1


def test_an_id_that_a_person_typed_as_a_number_is_one(provider: Provider) -> None:
    provider.lost_reply, provider.states = True, ["succeeded"]
    task = DurableTask()
    with pytest.raises(AttemptParked):
        task.run(train())
    provider.jobs["17"] = provider.jobs.pop("job-1")
    given = Stored(inline=encode(17).data)
    assert task.inbox.resolve(1, "happened", by="ann", result=given).counts
    task.same_again()
    assert task.run(train()) == "model of 17"
