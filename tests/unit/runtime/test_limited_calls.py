"""Model calls under a limit, in memory: who waits, what is asked of the ledger, what goes back."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest

from airflow_aiflow.durable.limit import SHARE_SECONDS, Lent, Limit, Wish
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    AttemptParked,
    FlowOptionError,
    LedgerUnavailableError,
    ModelOutputError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.limiter import PATIENCE, Limiter, Permit
from airflow_aiflow.runtime.paid_calls import LONGEST_LIMIT_WAIT
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_limits import MemoryLimits
from airflow_aiflow.testing import DurableTask, ManualClock, ScriptedModels

LIMIT = "openai"


class WatchedLimits(MemoryLimits):
    """Note when they are asked."""

    def __init__(self, ledger: MemoryLedger, clock: ManualClock) -> None:
        super().__init__(ledger, clock)
        self.moments: list[float] = []

    def exchange(self, name: str, worker: UUID, wish: Wish, *, ttl: float) -> Lent | None:
        self.moments.append(self._clock.monotonic())
        return super().exchange(name, worker, wish, ttl=ttl)


class Watched:
    """Hold a limiter over limits that are watched."""

    def __init__(self, clock: ManualClock, limit: Limit) -> None:
        self.clock = clock
        self.memory = MemoryLedger(clock)
        self.limits = WatchedLimits(self.memory, clock)
        self.limits.set_limit(limit)
        self.lines: list[str] = []
        self.limiter = Limiter(
            self.limits,
            clock,
            pause=lambda seconds, until: clock.wait(seconds, until=until),
            say=self.lines.append,
            keeper=False,
        )

    def permit(self, tokens: int = 10) -> Permit:
        return self.limiter.permit(LIMIT, tokens, check=lambda: None, closing=lambda: False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def task(clock: ManualClock) -> DurableTask:
    return DurableTask(clock=clock, models=ScriptedModels())


def limit(task: DurableTask, **most: int) -> None:
    task.ledger.limits.set_limit(Limit(LIMIT, **most))


def test_calls_wait_for_the_minute_and_the_log_says_so(task: DurableTask, clock: ManualClock) -> None:
    limit(task, rpm=3)
    began = clock.monotonic()
    task.run(lambda flow: [flow.llm("ask", f"p{number}", rate_limit=LIMIT) for number in range(5)])
    assert 59 <= clock.monotonic() - began < 66
    assert any("waiting for limit 'openai': 3 requests a minute" in line for line in task.host.lines)
    assert any("waited" in line and "for limit 'openai'" in line for line in task.host.lines)


def test_replays_count_nothing(task: DurableTask, clock: ManualClock) -> None:
    limit(task, rpm=3)
    for _ in range(2):
        began = clock.monotonic()
        task.run(lambda flow: [flow.llm("ask", f"p{number}", rate_limit=LIMIT) for number in range(3)])
        assert clock.monotonic() - began < 1


def test_an_unknown_limit_sends_nothing_and_says_how_to_set_it() -> None:
    models = ScriptedModels()
    task = DurableTask(models=models)
    with pytest.raises(AiflowConfigError, match="aiflow limits set openai --rpm"):
        task.run(lambda flow: flow.llm("ask", "p", rate_limit=LIMIT))
    assert models.requests == []


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 129, 7])
def test_a_name_that_is_none_is_refused(task: DurableTask, name: str) -> None:
    with pytest.raises(FlowOptionError, match="rate_limit must name a limit"):
        task.run(lambda flow: flow.llm("ask", "p", rate_limit=name))


def test_a_share_is_spent_without_asking(clock: ManualClock) -> None:
    watched = Watched(clock, Limit(LIMIT, rpm=6000))
    for _ in range(300):
        watched.permit().end(tokens=10)
        clock.advance(0.01)
    moments = watched.limits.moments
    assert len(moments) <= 8, "for 300 calls"
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(moments))


def test_a_share_that_lapsed_is_asked_for_again(clock: ManualClock) -> None:
    watched = Watched(clock, Limit(LIMIT, rpm=6000))
    watched.permit().end(tokens=10)
    clock.advance(SHARE_SECONDS)
    watched.permit()
    assert len(watched.limits.moments) == 2


def test_what_is_left_goes_back_and_calls_at_work_are_renewed(clock: ManualClock) -> None:
    watched = Watched(clock, Limit(LIMIT, rpm=60, tpm=1000, concurrency=5))
    permit = watched.permit(tokens=100)
    for _ in range(4):
        clock.advance(SHARE_SECONDS / 3)
        assert watched.limiter.keep()
    [view] = watched.limits.limits()
    assert (view.used_requests, view.used_tokens, view.slots, view.workers) == (1, 100, 1, 1)
    permit.end(tokens=30)
    watched.limiter.close()
    [view] = watched.limits.limits()
    assert (view.used_requests, view.used_tokens, view.slots, view.workers) == (1, 30, 0, 0)


def test_a_worker_that_dies_gives_its_slots_back_by_lapse(clock: ManualClock) -> None:
    watched = Watched(clock, Limit(LIMIT, concurrency=1))
    watched.permit()
    other = Limiter(
        watched.limits,
        clock,
        pause=lambda seconds, until: clock.wait(seconds, until=until),
        say=watched.lines.append,
        keeper=False,
    )
    began = clock.monotonic()
    other.permit(LIMIT, 10, check=lambda: None, closing=lambda: False)
    assert SHARE_SECONDS <= clock.monotonic() - began <= SHARE_SECONDS + 2
    assert any("1 calls at once" in line for line in watched.lines)


def test_a_call_that_needs_more_than_a_minute_allows_takes_the_whole_minute(clock: ManualClock) -> None:
    watched = Watched(clock, Limit(LIMIT, tpm=1000))
    watched.permit(tokens=5000).end(tokens=5000)
    began = clock.monotonic()
    watched.permit(tokens=1)
    assert 59 <= clock.monotonic() - began < 63


def test_a_lost_ledger_starts_no_call(clock: ManualClock) -> None:
    watched = Watched(clock, Limit(LIMIT, rpm=60))
    watched.memory.unavailable = True
    began = clock.monotonic()
    with pytest.raises(LedgerUnavailableError):
        watched.permit()
    assert PATIENCE <= clock.monotonic() - began < PATIENCE + 5
    watched.memory.unavailable = False
    watched.permit()


def test_an_answer_that_was_lost_lends_nothing_twice(clock: ManualClock) -> None:
    watched = Watched(clock, Limit(LIMIT, rpm=4))
    watched.memory.lost_answers = 1
    began = clock.monotonic()
    for _ in range(4):
        watched.permit().end(tokens=1)
    assert clock.monotonic() - began < 5, "what was lent by the lost answer is taken back by the next exchange"
    watched.limiter.close()
    assert watched.limits.limits()[0].used_requests == 4


def test_every_try_counts_against_the_limit(clock: ManualClock) -> None:
    def answer(_request: LlmRequest) -> str:
        if len(models.requests) < 3:
            raise ModelUnavailableError("busy", status_code=503)
        return "yes"

    models = ScriptedModels(answer)
    task = DurableTask(models=models, clock=clock)
    limit(task, rpm=60)
    assert task.run(lambda flow: flow.llm("ask", "p", rate_limit=LIMIT)) == "yes"
    assert task.ledger.limits.limits()[0].used_requests == 3


def test_output_retries_count_once_they_are_made(clock: ManualClock) -> None:
    class Retrying(ScriptedModels):
        def call(self, request: LlmRequest) -> LlmAnswer:
            answer = super().call(request)
            return LlmAnswer(answer.value, answer.usage, requests=3)

    task = DurableTask(models=Retrying(), clock=clock)
    limit(task, rpm=60)
    task.run(lambda flow: flow.llm("ask", "p", rate_limit=LIMIT))
    assert task.ledger.limits.limits()[0].used_requests == 3


def test_a_call_that_fails_gives_its_place_back(clock: ManualClock) -> None:
    def answer(_request: LlmRequest) -> str:
        raise ModelOutputError("misfit")

    task = DurableTask(models=ScriptedModels(answer), clock=clock)
    limit(task, concurrency=1)
    for _ in range(3):
        with pytest.raises(ModelOutputError):
            task.run(lambda flow: flow.llm("ask", "p", rate_limit=LIMIT))
    assert task.ledger.limits.limits()[0].slots == 0


def test_a_wait_of_minutes_gives_the_slot_back(task: DurableTask, clock: ManualClock) -> None:
    limit(task, concurrency=1)
    blocker = uuid4()

    def blocked() -> None:
        wish = Wish(in_flight=1, want_slots=1)
        task.ledger.limits.exchange(LIMIT, blocker, wish, ttl=LONGEST_LIMIT_WAIT * 2)

    blocked()
    began = clock.monotonic()
    with pytest.raises(AttemptParked, match="limit 'openai' left no room for 300 s"):
        task.run(lambda flow: flow.llm("ask", "p", rate_limit=LIMIT))
    assert LONGEST_LIMIT_WAIT <= clock.monotonic() - began < LONGEST_LIMIT_WAIT + 5
    clock.advance(LONGEST_LIMIT_WAIT)
    task.same_again()
    assert task.run(lambda flow: flow.llm("ask", "p", rate_limit=LIMIT)).startswith("answer")


class Late(Exception):
    """Say that the author's own time is over."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], object]]:
    """Give an alarm clock of the author's, as Airflow's execution_timeout is one."""

    def ring(_number: int, _frame: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("where", ["in the call", "in the wait"])
def test_the_authors_own_time_limit_ends_a_call_and_a_wait(alarm: Callable[[float], object], where: str) -> None:
    called, never = threading.Event(), threading.Event()

    def answer(_request: LlmRequest) -> str:
        called.set()
        alarm(0.05)
        never.wait(60)
        return "late"

    task = DurableTask(models=ScriptedModels(answer), clock=SystemClock())
    limit(task, concurrency=1)
    if where == "in the wait":
        task.ledger.limits.exchange(LIMIT, uuid4(), Wish(in_flight=1, want_slots=1), ttl=600)
    began = time.monotonic()

    def body(flow: Flow) -> None:
        if where == "in the wait":
            alarm(0.2)
        flow.llm("ask", "p", rate_limit=LIMIT)

    with pytest.raises(Late):
        task.run(body)
    assert time.monotonic() - began < 30
    assert called.is_set() == (where == "in the call")
    assert sum(view.waiting for view in task.ledger.limits.limits()) == 0


def test_waiting_is_no_part_of_the_step_timeout() -> None:
    clock = ManualClock()
    task = DurableTask(models=ScriptedModels(), clock=clock)
    limit(task, rpm=1)
    attempt, asked = task.attempt(), [f"p{number}" for number in range(3)]
    run_attempt(
        attempt,
        task.services,
        lambda flow: [flow.llm("ask", prompt, rate_limit=LIMIT) for prompt in asked],
        step_timeout=20.0,
    )
    assert clock.monotonic() > 1000 + 2 * 59


def test_a_map_shares_one_limit(task: DurableTask, clock: ManualClock) -> None:
    limit(task, rpm=20)
    answers = task.run(lambda flow: flow.llm_map("page", [f"p{n}" for n in range(30)], rate_limit=LIMIT, max_workers=4))
    assert len(answers) == 30
    assert task.ledger.limits.limits()[0].slots == 0
