"""What goes wrong around an effect's call: a lost ledger at each statement, a lost store, odd results, races."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    ArtifactUnavailableError,
    AttemptParked,
    EffectConflictError,
    EffectInDoubtError,
    EffectKeyRequiredError,
    EffectOptionError,
    FlowOptionError,
    LedgerUnavailableError,
)
from airflow_aiflow.runtime import payloads
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.runtime.effect_seal import seal_effect
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.testing import DurableTask, ManualClock, flow
from tests.unit.runtime.shaky_ledger import ShakyLedger

SENT: list[object] = []

#: More statements than one attempt with one effect makes.
STATEMENTS = range(1, 12)

#: Longer than any patience: the ledger stays away for the whole attempt.
FOR_GOOD = 10**9

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


def send(to: str) -> str:
    SENT.append(to)
    return f"sent to {to}"


def pay(ctx: EffectContext, to: str) -> str:
    SENT.append(ctx.idempotency_key)
    return f"paid {to}"


class Shaky:
    """One task over a ledger that fails, with a spool."""

    def __init__(self, folder: Path, *, spooled: bool = True, patience: float = 5.0) -> None:
        self.clock = ManualClock()
        self.ledger = ShakyLedger(self.clock)
        settings = FlowSettings(ledger_patience=patience, spool_dir=folder / "spool" if spooled else None)
        self.task = DurableTask(ledger=self.ledger, clock=self.clock, settings=settings)

    def run(self, body: Callable[[Flow], object]) -> object:
        """Run one attempt; an error is a value."""
        try:
            return self.task.run(body)
        except Exception as error:
            return error
        finally:
            self.clock.advance(1000)  # whoever is gone is presumed gone


def mail(f: Flow) -> object:
    return f.effect("mail", send, "a", key="k", on_in_doubt="hold")


def payment(f: Flow) -> object:
    return f.effect("pay", pay, "a", key="k", on_in_doubt="retry")


@pytest.mark.parametrize("spooled", [True, False])
@pytest.mark.parametrize("number", STATEMENTS)
def test_a_ledger_that_goes_away_at_any_statement_never_doubles(tmp_path: Path, number: int, spooled: bool) -> None:
    """Away for good from statement n on; the next attempts find it again."""
    world = Shaky(tmp_path, spooled=spooled)
    world.ledger.arm(down=(number, FOR_GOOD))
    first = world.run(mail)
    world.ledger.arm()
    second, third = world.run(mail), world.run(mail)
    assert len(SENT) <= 1
    for got in (first, second, third):
        if isinstance(got, EffectInDoubtError | LedgerUnavailableError):
            continue
        assert got == "sent to a"
        assert SENT == ["a"]
    if SENT and spooled:
        assert second == third == "sent to a"


@pytest.mark.parametrize("number", STATEMENTS)
def test_a_ledger_that_blinks_at_any_statement_costs_nothing(tmp_path: Path, number: int) -> None:
    world = Shaky(tmp_path)
    world.ledger.arm(down=(number, number))
    assert world.run(mail) == "sent to a"
    assert SENT == ["a"]


@pytest.mark.parametrize(("patience", "width"), [(5.0, 4), (5.0, 8), (5.0, 16), (0.0, 0), (0.0, 1), (0.0, 2)])
@pytest.mark.parametrize("number", STATEMENTS)
def test_a_ledger_that_comes_back_later_than_the_patience_never_doubles(
    tmp_path: Path, number: int, patience: float, width: int
) -> None:
    """A success whose record failed must not be taken for a call that was refused."""
    world = Shaky(tmp_path, patience=patience)
    world.ledger.arm(down=(number, number + width))
    world.run(mail)
    world.ledger.arm()
    second = world.run(mail)
    assert second == "sent to a" or isinstance(second, EffectInDoubtError)
    assert len(SENT) == (0 if isinstance(second, EffectInDoubtError) else 1)


@pytest.mark.parametrize("number", STATEMENTS)
def test_a_lost_answer_at_any_statement_costs_nothing(tmp_path: Path, number: int) -> None:
    world = Shaky(tmp_path)
    world.ledger.arm(lost=number)
    assert world.run(mail) == "sent to a"
    assert world.run(mail) == "sent to a"
    assert SENT == ["a"]


@pytest.mark.parametrize("number", STATEMENTS)
def test_a_target_that_dedups_gets_one_key_whatever_is_lost(tmp_path: Path, number: int) -> None:
    world = Shaky(tmp_path, spooled=False)
    world.ledger.arm(down=(number, FOR_GOOD))
    world.run(payment)
    world.ledger.arm(lost=number)
    assert world.run(payment) == "paid a"
    assert len(set(SENT)) == 1


class NoStore(MemoryArtifactStore):
    """A store that refuses connections while it is down."""

    down = True

    def put_value(self, data: bytes) -> bytes:
        """Refuse."""
        if self.down:
            raise ArtifactUnavailableError("no store") from ConnectionRefusedError("refused")
        return super().put_value(data)


def send_for_long_reply(to: str) -> str:
    SENT.append(to)
    return "x" * 5_000


def test_an_effect_whose_large_result_finds_no_store_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "RESCUE_LIMIT", 1_000)
    task = DurableTask(store=NoStore(), settings=FlowSettings(inline_limit=100))
    for _ in range(2):
        assert task.run(lambda f: f.effect("mail", send_for_long_reply, "a", key="k")) == "x" * 5_000
    assert SENT == ["a"]


class Node:
    """Be one of many that know each other."""

    __slots__ = ("__dict__",)


def send_for_ring(to: str) -> object:
    SENT.append(to)
    nodes = [Node() for _ in range(4)]
    for node in nodes:
        node.__dict__.update({f"n{i}": other for i, other in enumerate(nodes)})
    return nodes[0]


class Broken:
    """Be an object that can't even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def send_for_broken(to: str) -> object:
    SENT.append(to)
    return Broken()


class Revealing:
    """Show a secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Revealing(sk-secret, '\ud800')"


def send_for_revealing(to: str) -> object:
    SENT.append(to)
    return Revealing()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fn", [send_for_ring, send_for_broken, send_for_revealing])
def test_a_result_of_any_kind_never_costs_the_record(fn: Callable[[str], object]) -> None:
    task = DurableTask(secrets=("sk-secret",))
    first = task.run(lambda f: f.effect("mail", fn, "a", key="k"))
    assert task.run(lambda f: f.effect("mail", fn, "a", key="k")) == first
    assert SENT == ["a"]
    assert "sk-secret" not in str(first)


async def asend(to: str) -> None:
    SENT.append(to)


def make_coroutine(to: str) -> object:
    return asend(to)


def generate(to: str) -> Iterator[None]:
    SENT.append(to)
    yield


async def agenerate(to: str) -> object:
    SENT.append(to)
    yield


@pytest.mark.parametrize("fn", [generate, agenerate, partial(generate)])
def test_a_generator_function_is_refused_for_its_body_would_never_run(fn: Callable[[str], object]) -> None:
    with flow() as f, pytest.raises(TypeError, match="generator"):
        f.effect("mail", fn, "a", key="k")
    with flow() as f, pytest.raises(TypeError, match="generator"):
        f.step("mail", fn, "a")


def test_a_coroutine_that_comes_out_of_an_effect_is_no_success() -> None:
    task = DurableTask()
    with pytest.raises(EffectInDoubtError) as caught:
        task.run(lambda f: f.effect("mail", make_coroutine, "a", key="k", on_in_doubt="hold"))
    assert "coroutine" in str(caught.value.__cause__)
    with pytest.raises(TypeError, match="coroutine"):
        task.run(lambda f: f.step("mail", make_coroutine, "a"))


def test_a_refused_call_takes_no_name() -> None:
    text = "x"
    with flow(secrets=("sk-1",)) as f:
        with pytest.raises(EffectOptionError):
            f.effect("mail", lambda to: SENT.append(text), "a")
        with pytest.raises(EffectOptionError):
            f.effect("mail", send, "sk-1")
        with pytest.raises(TypeError):
            f.effect("mail", send)  # type: ignore[call-arg, arg-type]
        assert f.effect("mail", send, "a") == "sent to a"
        with pytest.raises(EffectKeyRequiredError):
            f.effect("mail", send, "a")


@pytest.mark.parametrize("identity", [(), [], 5, ("to", 5), {"to"}])
def test_an_identity_that_names_nothing_is_refused(identity: object) -> None:
    if identity == {"to"}:
        with flow() as f:
            assert f.effect("mail", send, "a", key="k", identity=identity) == "sent to a"
        return
    with flow() as f, pytest.raises(EffectOptionError, match="identity"):
        f.effect("mail", send, "a", key="k", identity=identity)
    assert SENT == []


@pytest.mark.parametrize("name", ["", " ", 5, None, "a\ud800", "a\x00b"])
def test_a_name_that_the_ledger_cannot_hold_is_refused_before_anything_runs(name: str) -> None:
    with flow() as f:
        for call in (
            lambda: f.effect(name, send, "a", key="k"),
            lambda: f.step(name, send, "a"),
            lambda: f.llm(name, "p"),
            lambda: f.map(name, send, ["a"]),
            lambda: f.llm_map(name, ["p"]),
            lambda: f.emit(name),
        ):
            with pytest.raises(FlowOptionError, match="name"):
                call()
    assert SENT == []


def test_a_key_that_the_ledger_cannot_hold_is_refused() -> None:
    with flow() as f, pytest.raises(EffectOptionError, match="key"):
        f.effect("mail", send, "a", key="a\ud800")
    assert SENT == []


def test_what_is_no_function_is_refused_before_the_intent() -> None:
    with flow() as f:
        with pytest.raises(TypeError, match="not callable"):
            f.effect("mail", None, "a", key="k")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="not callable"):
            f.step("mail", "send", "a")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not callable"):
            f.map("mail", 5, ["a"])  # type: ignore[call-overload]


def charge(ctx: EffectContext, amount: int, currency: str = "EUR", /, *rest: int, note: str = "n", **more: int) -> str:
    SENT.append((amount, currency, rest, note, more))
    if len(SENT) == 1:
        raise OSError("lost")
    return "ok"


def test_a_call_after_doubt_has_the_recorded_arguments_defaults_included(monkeypatch: pytest.MonkeyPatch) -> None:
    task = DurableTask()
    with pytest.raises(EffectInDoubtError):
        task.run(lambda f: f.effect("pay", partial(charge, more=1), 5, key="k", on_in_doubt="hold"))
    monkeypatch.setattr(charge, "__defaults__", ("USD",))
    monkeypatch.setattr(charge, "__kwdefaults__", {"note": "other"})
    assert task.run(lambda f: f.effect("pay", partial(charge, more=1), 5, key="k", on_in_doubt="retry")) == "ok"
    assert SENT == [(5, "EUR", (), "n", {"more": 1})] * 2


def lose_every_reply(ctx: EffectContext, to: str) -> str:
    SENT.append(to)
    raise OSError("lost")


def test_a_doubt_that_outlives_the_tries_of_one_attempt_stays_a_doubt() -> None:
    """The next attempt calls with the recorded arguments, and under another policy it asks."""
    task = DurableTask()
    with pytest.raises(OSError, match="lost"):
        task.run(lambda f: f.effect("pay", lose_every_reply, "old", key="k", on_in_doubt="retry", retries=1))
    with pytest.raises(OSError, match="lost"):
        task.run(lambda f: f.effect("pay", lose_every_reply, "new", key="k", on_in_doubt="retry", retries=0))
    assert SENT == ["old", "old", "old"]
    with pytest.raises(EffectInDoubtError):
        task.run(lambda f: f.effect("pay", lose_every_reply, "new", key="k", on_in_doubt="hold"))
    assert len(SENT) == 3


MEET = threading.Barrier(2)
IN_CALL, GO_ON = threading.Event(), threading.Event()


def slowly(ctx: EffectContext, to: str) -> str:
    SENT.append(to)
    IN_CALL.set()
    assert GO_ON.wait(PATIENCE)
    return f"paid {to}"


def twice_at_once(item: int) -> object:
    if item == 1:
        assert IN_CALL.wait(PATIENCE)
        threading.Timer(0.2, GO_ON.set).start()
    return current_flow().effect("pay", slowly, "a", key="same", on_in_doubt=POLICY[0])


POLICY = ["hold"]


@pytest.mark.parametrize("policy", ["hold", "retry"])
def test_two_threads_that_race_on_one_identity_make_one_call(policy: str) -> None:
    IN_CALL.clear()
    GO_ON.clear()
    POLICY[0] = policy
    task = DurableTask(clock=SystemClock())
    assert task.run(lambda f: f.map("m", twice_at_once, [0, 1], max_workers=2)) == ["paid a", "paid a"]
    assert SENT == ["a"]


def calls_itself(to: str) -> object:
    SENT.append(to)
    return current_flow().effect("pay", calls_itself, to, key="k")


def test_an_effect_that_calls_itself_does_not_wait_for_ever() -> None:
    with pytest.raises(EffectInDoubtError):
        DurableTask().run(lambda f: f.effect("pay", calls_itself, "a", key="k", on_in_doubt="hold"))
    assert SENT == ["a"]


def send_old(to: str, subject: str, body: str) -> str:
    SENT.append(to)
    return "sent"


def test_a_done_effect_is_judged_although_its_function_takes_other_arguments_now() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    first = DurableTask(ledger=ledger, clock=clock, run_id="r1")
    second = DurableTask(ledger=ledger, clock=clock, run_id="r2")
    first.run(lambda f: f.effect("mail", send_old, "a", "s", "b", key="k"))
    with pytest.raises(EffectConflictError, match="subject"):
        second.run(lambda f: f.effect("mail", send, "a", key="k"))
    assert second.run(lambda f: f.effect("mail", send, "a", key="k", on_conflict="keep")) == "sent"


def test_a_conflict_masks_secrets_in_its_message_and_in_its_event() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    first = DurableTask(ledger=ledger, clock=clock, run_id="r1")
    settings = FlowSettings(log_content=True)
    second = DurableTask(ledger=ledger, clock=clock, run_id="r2", secrets=("hunter2",), settings=settings)
    first.run(lambda f: f.effect("mail", send, "hunter2", key="k"))
    with pytest.raises(EffectConflictError) as caught:
        second.run(lambda f: f.effect("mail", send, "a", key="k"))
    assert "hunter2" not in str(caught.value)
    second.run(lambda f: f.effect("mail", send, "a", key="k", on_conflict="keep"))
    assert not any(b"hunter2" in event.data for event in ledger.events(second.execution))
    assert not any("hunter2" in line for line in second.host.lines)


def test_an_effect_counts_as_a_flow_call_of_its_item() -> None:
    """Else a released effect would never be looked at again: the recorded item would hide it."""
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.map("m", mail_each, ["a"])

    task.run(body)
    steps = task.ledger.recorded(open_lease(task), 1).steps
    assert steps == []


def mail_each(to: str) -> object:
    return current_flow().effect("mail", send, to, key=to)


def open_lease(task: DurableTask) -> Lease:
    with open_flow(task.attempt(), task.services) as f:
        return f.lease


ENTERED, LEAVE = threading.Event(), threading.Event()


def held_call(ctx: EffectContext, to: str) -> str:
    SENT.append(to)
    ENTERED.set()
    assert LEAVE.wait(PATIENCE)
    return f"by call {len(SENT)}"


def at_once(ctx: EffectContext, to: str) -> str:
    SENT.append(to)
    return f"by call {len(SENT)}"


class TwoRuns:
    """Two executions that share a business key, each with its own worker."""

    def __init__(self, *, busy_wait: float) -> None:
        ENTERED.clear()
        LEAVE.clear()
        clock = SystemClock()
        ledger = MemoryLedger(clock)
        settings = FlowSettings(busy_wait=busy_wait)
        self.first = DurableTask(ledger=ledger, clock=clock, run_id="r1", settings=settings)
        self.second = DurableTask(ledger=ledger, clock=clock, run_id="r2", settings=settings)
        self.results: list[object] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.results.append(self.first.run(lambda f: f.effect("pay", held_call, "a", key="k")))

    def __enter__(self) -> TwoRuns:
        self._thread.start()
        assert ENTERED.wait(PATIENCE)
        return self

    def __exit__(self, *error: object) -> None:
        LEAVE.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def test_another_execution_waits_for_the_one_at_work_and_takes_its_result() -> None:
    with TwoRuns(busy_wait=PATIENCE) as runs:
        threading.Timer(0.3, LEAVE.set).start()
        assert runs.second.run(lambda f: f.effect("pay", held_call, "a", key="k")) == "by call 1"
    assert runs.results == ["by call 1"]
    assert SENT == ["a"]


def test_another_execution_gives_its_slot_back_and_comes_again() -> None:
    with TwoRuns(busy_wait=0.2) as runs, pytest.raises(AttemptParked, match="in the hands of"):
        runs.second.run(lambda f: f.effect("pay", held_call, "a", key="k", on_in_doubt="retry"))
    runs.second.same_again()
    assert runs.second.run(lambda f: f.effect("pay", held_call, "a", key="k")) == "by call 1"
    assert SENT == ["a"]


def test_a_late_outcome_beside_a_policys_retry_is_kept_told_and_replayed() -> None:
    """Both calls went out with one key; whoever recorded first is what every try gets."""
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    task = DurableTask(ledger=ledger, clock=clock)
    real = ledger.settle

    def late_first(intent_id: object, *rest: object, **more: object) -> object:
        ledger.settle = real  # type: ignore[method-assign]
        # The frozen first call comes back a moment before the second one is recorded.
        first, result = ledger._tables.intents[OPEN[0]][1], Stored(inline=b'"by the first"')
        seal = seal_effect(None, first.lease, first.generation, first.intent_id, first.request_fp, result)
        real(OPEN[0], "succeeded", result=result, seal=seal)
        return real(intent_id, *rest, **more)  # type: ignore[arg-type]

    OPEN.clear()
    with pytest.raises(OSError, match="lost"):
        task.run(lambda f: f.effect("pay", lose_every_reply, "a", key="k", on_in_doubt="retry", retries=0))
    OPEN.extend(ledger._tables.intents)
    ledger.settle = late_first  # type: ignore[method-assign, assignment]
    assert task.run(lambda f: f.effect("pay", at_once, "a", key="k", on_in_doubt="retry")) == "by the first"
    assert any("twice" in line for line in task.host.warnings)
    assert "effect_twice" in [event.kind for event in ledger.events(task.execution)]
    assert task.run(lambda f: f.effect("pay", at_once, "a", key="k")) == "by the first"


OPEN: list[UUID] = []


def test_a_success_that_lies_in_the_spool_is_no_doubt_to_a_second_call(tmp_path: Path) -> None:
    world = Shaky(tmp_path)

    def body(f: Flow) -> object:
        world.ledger.arm(down=(2, 40))
        with pytest.raises(LedgerUnavailableError):
            f.effect("pay", at_once, "a", key="k", on_in_doubt="retry")
        world.ledger.arm()
        return f.effect("pay", at_once, "a", key="k", on_in_doubt="retry")

    assert world.run(body) == "by call 1"
    assert SENT == ["a"]
