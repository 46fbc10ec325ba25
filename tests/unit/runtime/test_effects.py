"""Effects: intend, act, record; what is unknown is never sent again without a word."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    AttemptParked,
    EffectConflictError,
    EffectInDoubtError,
    EffectKeyRequiredError,
    EffectNotAppliedError,
    EffectOptionError,
    FlowOptionError,
)
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ManualClock, flow

SENT: list[object] = []
KEYS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()
    KEYS.clear()


class Lost(Exception):
    """Stand for a lost reply."""


def send(to: str, subject: str = "hello") -> str:
    SENT.append((to, subject))
    return f"sent to {to}"


def pay(ctx: EffectContext, number: str) -> str:
    SENT.append(number)
    KEYS.append(ctx.idempotency_key)
    return f"paid {number}"


def lose_reply(ctx: EffectContext, number: str) -> str:
    SENT.append(number)
    KEYS.append(ctx.idempotency_key)
    if len(SENT) == 1:
        raise Lost
    return "ok"


def lose_mail(to: str) -> None:
    SENT.append(to)
    raise Lost


def test_done_once_over_retries_and_runs() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    first = DurableTask(ledger=ledger, clock=clock, run_id="r1")
    second = DurableTask(ledger=ledger, clock=clock, run_id="r2")
    for task in (first, first, second):
        assert task.run(lambda f: f.effect("mail", send, "a@example.com", key="contract/1")) == "sent to a@example.com"
    assert SENT == [("a@example.com", "hello")]
    assert "done before by run r1: not sent again" in second.host.warnings[0]


def test_without_a_key_the_scope_is_this_task_of_this_run() -> None:
    """C21: two runs with the same arguments are two effects; a retry of the first is none."""
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    first = DurableTask(ledger=ledger, clock=clock, run_id="r1")
    second = DurableTask(ledger=ledger, clock=clock, run_id="r2")
    for task in (first, second, first):
        task.run(lambda f: f.effect("mail", send, "a@example.com"))
    assert len(SENT) == 2


def test_a_second_call_of_a_name_needs_a_key() -> None:
    with flow() as f:
        f.effect("mail", send, "a")
        with pytest.raises(EffectKeyRequiredError) as caught:
            f.effect("mail", send, "b")
    assert str(caught.value) == (
        "effect 'mail' is called a second time in this task: give each call its own key=. "
        "Nothing was sent for this call"
    )
    assert SENT == [("a", "hello")]


def test_a_mapped_task_needs_a_key() -> None:
    with flow(map_index=3) as f, pytest.raises(EffectKeyRequiredError):
        f.effect("mail", send, "a")
    assert SENT == []


def test_an_effect_inside_a_map_needs_a_key() -> None:
    with flow() as f:
        with pytest.raises(EffectKeyRequiredError):
            f.map("each", lambda to: f.effect("mail", send, to), ["a"], item_key=str)
        f.map("each", mail_with_key, ["a", "b"])
    assert sorted(map(str, SENT)) == ["('a', 'hello')", "('b', 'hello')"]


def mail_with_key(to: str) -> str:
    from airflow_aiflow.runtime.current import current_flow

    return current_flow().effect("mail", send, to, key=f"mail/{to}")


def test_names_are_part_of_the_identity() -> None:
    with flow() as f:
        f.effect("charge", send, "a", key="order/1")
        f.effect("receipt", send, "a", key="order/1")
    assert len(SENT) == 2


def test_hold_fails_at_once_and_later_attempts_send_nothing() -> None:
    task = DurableTask()

    def body(f: Flow) -> None:
        f.effect("mail", lose_mail, "a", key="k", on_in_doubt="hold")

    with pytest.raises(EffectInDoubtError) as caught:
        task.run(body)
    assert isinstance(caught.value.__cause__, Lost)
    for _ in range(2):
        with pytest.raises(EffectInDoubtError, match="effect 'mail' key k"):
            task.run(body)
    assert SENT == ["a"]


def test_retry_calls_again_with_the_same_key() -> None:
    task = DurableTask()
    assert task.run(lambda f: f.effect("pay", lose_reply, "4711", key="4711", on_in_doubt="retry")) == "ok"
    assert SENT == ["4711", "4711"]
    assert len(set(KEYS)) == 1


def test_retry_after_doubt_calls_with_the_recorded_arguments() -> None:
    task = DurableTask(settings=FlowSettings(lease=FlowSettings().lease))

    def first(f: Flow) -> object:
        return f.effect("pay", lose_reply, "old", key="k", on_in_doubt="hold")

    with pytest.raises(EffectInDoubtError):
        task.run(first)
    got = task.run(lambda f: f.effect("pay", lose_reply, "new", key="k", on_in_doubt="retry"))
    assert got == "ok"
    assert SENT == ["old", "old"]
    assert len(set(KEYS)) == 1


@dataclasses.dataclass
class Invoice:
    """Be a class of the author's."""

    number: str


def lose_invoice(ctx: EffectContext, invoice: Invoice, *lines: Invoice) -> str:
    SENT.append((invoice, lines))
    if len(SENT) == 1:
        raise Lost
    return "ok"


def test_recorded_arguments_come_back_as_the_classes_that_the_function_names() -> None:
    task = DurableTask()

    def body(policy: str, number: str) -> Callable[[Flow], object]:
        return lambda f: f.effect("pay", lose_invoice, Invoice(number), Invoice("line"), key="k", on_in_doubt=policy)

    with pytest.raises(EffectInDoubtError):
        task.run(body("hold", "old"))
    assert task.run(body("retry", "new")) == "ok"
    assert [(Invoice("old"), (Invoice("line"),))] * 2 == SENT


def test_what_the_author_was_handling_is_no_sign_of_what_the_call_did() -> None:
    def body(f: Flow) -> object:
        try:
            raise TimeoutError
        except TimeoutError:
            return f.effect("mail", refused, "a", key="k")

    assert DurableTask().run(body) == "ok"


def test_retry_without_ctx_is_refused_before_the_intent() -> None:
    with flow() as f, pytest.raises(EffectOptionError, match="first parameter `ctx`"):
        f.effect("mail", send, "a", key="k", on_in_doubt="retry")
    assert SENT == []


def refused(to: str) -> str:
    SENT.append(to)
    if len(SENT) < 3:
        raise EffectNotAppliedError("busy", retry_after=7)
    return "ok"


def test_what_was_surely_not_applied_is_tried_again_after_the_wait_asked_for() -> None:
    clock = ManualClock()
    with flow(clock=clock) as f:
        assert f.effect("mail", refused, "a", key="k") == "ok"
    assert SENT == ["a", "a", "a"]
    assert clock.waits.count(7) == 2


def always_refused(to: str) -> str:
    SENT.append(to)
    raise EffectNotAppliedError("no")


def test_retries_end_and_the_effect_can_be_tried_later() -> None:
    task = DurableTask()
    with pytest.raises(EffectNotAppliedError):
        task.run(lambda f: f.effect("mail", always_refused, "a", key="k", retries=1))
    assert SENT == ["a", "a"]
    assert task.run(lambda f: f.effect("mail", send, "b", key="k")) == "sent to b"


def test_a_conflict_names_what_differs_and_the_ways_out() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    DurableTask(ledger=ledger, clock=clock, run_id="r1").run(
        lambda f: f.effect("mail", send, "a", "Risk 2", key="contract/a.pdf")
    )
    other = DurableTask(ledger=ledger, clock=clock, run_id="r2")
    with pytest.raises(EffectConflictError) as caught:
        other.run(lambda f: f.effect("mail", send, "a", "Risk 4", key="contract/a.pdf"))
    message = str(caught.value)
    assert "effect 'mail' key contract/a.pdf was done" in message
    assert "subject 'Risk 2' -> 'Risk 4'. Nothing was sent." in message
    assert len(SENT) == 1
    assert other.run(lambda f: f.effect("mail", send, "a", "Risk 4", key="contract/a.pdf", identity=("to",)))
    assert other.run(lambda f: f.effect("mail", send, "a", "Risk 4", key="contract/a.pdf", on_conflict="keep"))
    assert len(SENT) == 1


def test_an_earlier_generation_of_the_same_execution_is_kept() -> None:
    task = DurableTask(on_clear="fresh")
    task.run(lambda f: f.effect("mail", send, "a", "Risk 2", key="k"))
    task.cleared()

    def body(f: Flow) -> object:
        assert f.generation == 2
        return f.effect("mail", send, "a", "Risk 4", key="k")

    assert task.run(body) == "sent to a"
    assert len(SENT) == 1
    assert any("the recorded result is kept" in line for line in task.host.warnings)


def test_an_unknown_keyword_is_explained() -> None:
    with flow() as f, pytest.raises(TypeError) as caught:
        f.effect("post", send, "a", json={})
    assert (
        "effect() got an unexpected keyword 'json'. Keywords are options of the effect; pass the function's own by "
        in str(caught.value)
    )


def test_partial_gives_keywords() -> None:
    task = DurableTask()
    for _ in range(2):
        task.run(lambda f: f.effect("mail", partial(send, subject="x"), "a", key="k"))
    assert SENT == [("a", "x")]


def test_closures_are_refused() -> None:
    text = "x"
    with flow() as f, pytest.raises(EffectOptionError, match="captures 'text'"):
        f.effect("mail", lambda to: SENT.append(text), "a", key="k")
    assert SENT == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ""}, "key is empty"),
        ({"key": "x" * 513}, "513 characters"),
        ({"key": 5}, "key must be a str, got int 5"),
        ({"key": "k", "on_in_doubt": "maybe"}, "on_in_doubt must be 'ask', 'hold' or 'retry', got 'maybe'"),
        ({"key": "k", "scope": "team"}, "scope must be"),
        ({"key": "k", "identity": "to"}, "write identity=('to',)"),
        ({"key": "k", "identity": ("whom",)}, "identity names 'whom'"),
        ({"key": "k", "retries": -1}, "retries must be a whole number"),
    ],
)
def test_wrong_options_are_refused_before_the_intent(options: dict[str, object], words: str) -> None:
    with flow() as f, pytest.raises(EffectOptionError) as caught:
        f.effect("mail", send, "a", **options)
    assert words in str(caught.value)
    assert SENT == []


async def awaited(*args: object) -> None:
    SENT.append(args)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reconcile": 1}, "reconcile must be a function, got 1"),
        ({"classify": "unknown"}, "classify must be a function"),
        ({"compensate": ()}, "compensate must be a function"),
        ({"compensate": awaited}, "compensate is a coroutine function, which can't be awaited; write a plain 'def'"),
        ({"classify": awaited}, "classify is a coroutine function"),
        ({"require_approval": 1}, "require_approval must be True or False, got 1"),
        ({"assigned_users": "ann"}, "assigned_users must be a sequence of user ids, got 'ann'"),
        ({"assigned_users": None}, "assigned_users must be a sequence of user ids, got None"),
    ],
)
def test_wrong_options_of_doubt_and_approval_are_refused_before_the_intent(
    options: dict[str, object], words: str
) -> None:
    with flow() as f, pytest.raises(EffectOptionError) as caught:
        f.effect("mail", send, "a", key="k", **options)
    assert words in str(caught.value)
    assert SENT == []


@pytest.mark.parametrize("option", ["dedup_ttl", "retry_window", "in_doubt_timeout"])
@pytest.mark.parametrize("value", [0, -1, "1 h", True])
def test_a_duration_that_is_none_is_refused_before_the_intent(option: str, value: object) -> None:
    with flow() as f, pytest.raises(FlowOptionError, match=f"{option} must be a timedelta"):
        f.effect("mail", send, "a", key="k", **{option: value})
    assert SENT == []


@pytest.mark.parametrize("option", ["timeout", "dedup_ttl", "retry_window", "in_doubt_timeout"])
@pytest.mark.parametrize("value", [timedelta.max, 1e300, 10**400])
def test_a_duration_that_no_database_can_add_to_a_moment_is_refused_before_the_intent(
    option: str, value: object
) -> None:
    with flow() as f, pytest.raises(FlowOptionError, match=f"{option} must be at most 100 years, got"):
        f.effect("mail", send, "a", key="k", **{option: value})
    assert SENT == []


def test_a_request_with_a_secret_is_refused() -> None:
    with flow(secrets=("sk-test-123",)) as f, pytest.raises(EffectOptionError, match="holds a secret"):
        f.effect("mail", send, "Bearer sk-test-123", key="k")
    assert SENT == []


def odd_result(to: str) -> object:
    SENT.append(to)
    return object()


def test_a_result_that_cannot_be_stored_never_costs_the_record() -> None:
    task = DurableTask()
    first = task.run(lambda f: f.effect("mail", odd_result, "a", key="k"))
    assert task.run(lambda f: f.effect("mail", odd_result, "a", key="k")) == first
    assert SENT == ["a"]
    assert any("can't be stored" in line for line in task.host.warnings)


def slow_start(clock: ManualClock) -> None:
    clock.advance(60)


def test_an_intent_that_grew_old_before_its_call_is_settled_and_made_anew() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    real, once = ledger.intend, iter([True])

    def late(lease: object, intent: object) -> object:
        answer = real(lease, intent)  # type: ignore[arg-type]
        if next(once, False):
            clock.advance(6)  # the process is frozen between the commit and the call
        return answer

    ledger.intend = late  # type: ignore[method-assign, assignment]
    task = DurableTask(ledger=ledger, clock=clock)
    assert task.run(lambda f: f.effect("mail", send, "a", key="k")) == "sent to a"
    assert len(SENT) == 1


def test_a_release_name_with_odd_text_is_exact() -> None:
    """I16: NFC and NFD forms of one word are two keys."""
    with flow() as f:
        f.effect("mail", send, "a", key="caf\u00e9")
        f.effect("mail", send, "a", key="cafe\u0301")
    assert len(SENT) == 2


def busy_for_long(to: str) -> str:
    SENT.append(to)
    raise EffectNotAppliedError("busy", retry_after=600)


def test_refusals_are_counted_over_the_processes_of_a_try() -> None:
    """Each process gives its slot back, and the next one must not begin to count anew."""
    task = DurableTask()
    for _ in range(3):
        with pytest.raises(AttemptParked):
            task.run(lambda f: f.effect("mail", busy_for_long, "a", key="k", retries=3))
        task.same_again()
    with pytest.raises(EffectNotAppliedError) as ended:
        task.run(lambda f: f.effect("mail", busy_for_long, "a", key="k", retries=3))
    assert SENT == ["a"] * 4
    [note] = [note for note in ended.value.__notes__ if "refused 4 times since" in note]
    assert "retries=3 are used up in this try of the task" in note
    # Airflow's own retry has tries of its own.
    with pytest.raises(AttemptParked):
        task.run(lambda f: f.effect("mail", busy_for_long, "a", key="k", retries=3))
