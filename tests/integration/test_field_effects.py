"""
Situations around effects and clears that people who run such pipelines have met, on a real ledger.

Each name begins with what goes wrong elsewhere; the assertions are the right values.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.exceptions import (
    AttemptParked,
    EffectConflictError,
    EffectInDoubtError,
    EffectOptionError,
    StepInputError,
)
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.testing import DurableTask, ScriptedModels
from tests.integration.durable.targets import answering, reset, target

CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture(scope="module")
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    opened = PostgresLedger.connect(dsn)
    yield opened
    opened.close()


@pytest.fixture
def make(ledger: PostgresLedger, request: pytest.FixtureRequest) -> Callable[..., DurableTask]:
    def make(**options: Any) -> DurableTask:
        options = {"run_id": request.node.name, "dag_id": request.node.name} | options
        return DurableTask(ledger=ledger, clock=SystemClock(), **options)

    return make


def answer(text: str) -> str:
    CALLS.append(text)
    return f"answer to {text}"


def model(request: LlmRequest) -> str:
    return answer(request.prompt)


def charge(ctx: EffectContext, amount: int) -> str:
    CALLS.append(("charge", ctx.key, amount))
    return f"charged {amount}"


def fail() -> None:
    raise ZeroDivisionError


# --- C20: replay by position --------------------------------------------------------------------------------------


def test_an_edited_prompt_gets_the_answer_of_the_old_one(make: Callable[..., DurableTask]) -> None:
    """C20: killed after step 2, the second prompt edited: that one runs live, the others are replayed."""
    task = make(models=ScriptedModels(model))

    def pipeline(second: str, *, dies: bool) -> Callable[[Flow], list[str]]:
        def body(flow: Flow) -> list[str]:
            answers = [flow.llm("first", "one"), flow.llm("second", second)]
            if dies:
                fail()
            return [*answers, flow.llm("third", "three")]

        return body

    with pytest.raises(ZeroDivisionError):
        task.run(pipeline("two", dies=True))
    assert task.run(pipeline("two, but better", dies=False)) == [
        "answer to one",
        "answer to two, but better",
        "answer to three",
    ]
    assert CALLS == ["one", "two", "two, but better", "three"]


@pytest.mark.parametrize("unreadable", ["lambda", "file"])
def test_two_unreadable_requests_compare_equal(
    unreadable: str, make: Callable[..., DurableTask], tmp_path: Path
) -> None:
    """C20: what has no canonical form is refused before anything is sent; it never counts as "the same"."""
    with (tmp_path / "open").open("w") as file:
        value: Any = file if unreadable == "file" else (lambda: 1)
        with pytest.raises(StepInputError, match="amount"):
            make().run(lambda flow: flow.effect("charge", charge, value, key="order"))
    assert CALLS == []


def test_a_prompt_with_the_time_in_it_is_replayed_all_the_same(make: Callable[..., DurableTask]) -> None:
    """C20: a prompt that differs on each try is a miss on each try; the time taken as a step stays what it was."""
    task = make(models=ScriptedModels(model))
    noon = [datetime(2026, 11, 30, 12, minute, tzinfo=UTC) for minute in range(3)]

    def now() -> datetime:
        return noon.pop(0)

    def body(flow: Flow) -> str:
        asked: str = flow.llm("ask", f"What happened before {flow.step('now', now, cache_key='now'):%H:%M}?")
        if flow.attempt == 1:
            fail()
        return asked

    with pytest.raises(ZeroDivisionError):
        task.run(body)
    assert task.run(body) == "answer to What happened before 12:00?"
    assert CALLS == ["What happened before 12:00?"]


# --- C23: keyed by a counter of arrivals --------------------------------------------------------------------------


def test_two_tools_that_swap_their_order_swap_their_results(make: Callable[..., DurableTask]) -> None:
    """C23: A waits for B on the first try and B for A on the second; each keeps its own result, two effects in all."""
    task = make()

    def tools(flow: Flow, order: tuple[str, str]) -> dict[str, str]:
        first_is_in = threading.Event()

        def one(name: str) -> tuple[str, str]:
            if name == order[1]:
                assert first_is_in.wait(20)
            result = current_flow().effect("charge", charge, len(name), key=name)
            first_is_in.set()
            return name, result

        with ThreadPoolExecutor(2) as pool:
            results = [pool.submit(copy_context().run, one, name) for name in ("a", "bbbb")]
            return dict(result.result() for result in results)

    def body(flow: Flow) -> dict[str, str]:
        results = tools(flow, ("a", "bbbb") if flow.attempt == 1 else ("bbbb", "a"))
        if flow.attempt == 1:
            fail()
        return results

    with pytest.raises(ZeroDivisionError):
        task.run(body)
    assert task.run(body) == {"a": "charged 1", "bbbb": "charged 4"}
    assert sorted(CALLS) == [("charge", "a", 1), ("charge", "bbbb", 4)]


def test_two_equal_calls_of_one_turn_become_one(make: Callable[..., DurableTask]) -> None:
    """C23: asked twice for the same on purpose, two answers are paid for and both are replayed, in order."""
    replies = iter(["heads", "tails"])
    task = make(models=ScriptedModels(lambda prompt: next(replies)))

    def body(flow: Flow) -> list[str]:
        tossed = [flow.llm("toss", "Toss a coin") for _ in range(2)]
        if flow.attempt == 1:
            fail()
        return tossed

    with pytest.raises(ZeroDivisionError):
        task.run(body)
    assert task.run(body) == ["heads", "tails"]


# --- C25: the reply is lost after the commit ----------------------------------------------------------------------


def test_a_tool_that_raises_after_its_commit_is_run_again(make: Callable[..., DurableTask]) -> None:
    """C25: a counter goes up, then the tool raises; retries=3, and the counter stays at 1, in doubt."""
    task = make()
    for _ in range(4):
        with pytest.raises((EffectInDoubtError, AttemptParked)):
            task.run(lambda flow: flow.effect("charge", lossy_charge, key="order", on_in_doubt="hold"))
    assert CALLS == ["charged"]
    found = task.ledger.recorded(task_lease(task), 1).effects
    assert [effect.state for effect in found] == [EffectState.IN_DOUBT]


def lossy_charge(ctx: EffectContext) -> None:
    CALLS.append("charged")
    raise ConnectionResetError("the reply was lost")


def task_lease(task: DurableTask) -> Lease:
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    return Lease(standing.execution_pk, standing.fence)


# --- C37: a claim that is never taken over, or lapsed before it was committed ----------------------------------------


def test_a_lease_taken_late_in_a_transaction_is_lapsed_at_its_commit(
    dsn: str, make: Callable[..., DurableTask]
) -> None:
    """C37: the lease counts from the moment of the statement, not from the begin of a transaction around it."""
    task = make()
    task.run(lambda flow: flow.attempt)
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    with psycopg.connect(dsn) as connection:
        begun, written = connection.execute(
            "with moved as (insert into aiflow.lease (execution_id, fence, expires_at, progress_at)"
            " select %s, %s, clock_timestamp() + interval '5 s', clock_timestamp() from pg_sleep(0.5)"
            " returning expires_at)"
            " select now(), expires_at - interval '5 s' from moved",
            (standing.execution_pk, standing.fence),
        ).fetchone() or (None, None)
        connection.rollback()
    assert (written - begun).total_seconds() > 0.4
    for name in ("take_over", "take_first", "beat"):
        sql = str(statement(name))
        assert "clock_timestamp()" in sql
        assert "now()" not in sql


# --- C42: a billable request is sent again under another key ----------------------------------------------------------


def post(ctx: EffectContext, port: int, body: dict[str, Any]) -> Any:
    response = httpx.post(
        f"http://127.0.0.1:{port}/payouts", json=body, headers={"Idempotency-Key": ctx.idempotency_key}, timeout=20
    )
    response.raise_for_status()
    return response.json()


def test_a_resent_request_has_another_key_or_body(make: Callable[..., DurableTask]) -> None:
    """C42: the target takes the request and resets the socket; the next process sends the same key and bytes."""
    requests: list[bytes] = []

    def keep(then: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
        def serve(connection: socket.socket) -> None:
            requests.append(connection.recv(65536, socket.MSG_PEEK) and peek_whole(connection))
            then(connection)

        return serve

    task = make()
    with target(keep(reset), keep(answering(200, '{"id": 7}'))) as port:

        def attempt(cents: int) -> Any:
            payload = {"number": "4711", "cents": cents}
            return task.run(
                lambda flow: flow.effect("pay", post, port, payload, key="4711", on_in_doubt="retry", retries=0)
            )

        with pytest.raises(httpx.HTTPError):
            attempt(11_800)
        # Today's code would send another amount: what was begun is finished as it was begun.
        assert attempt(99) == {"id": 7}
    first, second = (request.partition(b"\r\n\r\n") for request in requests)
    assert first[2] == second[2] == b'{"number":"4711","cents":11800}'
    assert header(first[0], b"idempotency-key") == header(second[0], b"idempotency-key") != b""


def peek_whole(connection: socket.socket) -> bytes:
    """Read a request whole without taking it from who serves it."""
    while True:
        seen = connection.recv(65536, socket.MSG_PEEK)
        head, _, body = seen.partition(b"\r\n\r\n")
        size = header(head, b"content-length")
        if b"\r\n\r\n" in seen and len(body) >= int(size or b"0"):
            return seen


def header(head: bytes, name: bytes) -> bytes:
    """Give a header's value."""
    for line in head.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


# --- I11, I13, I14: runs made again, rows gone, code changed ---------------------------------------------------------


def test_a_run_made_again_answers_from_the_deleted_one_in_silence(make: Callable[..., DurableTask]) -> None:
    """I11, I13: deleted (or cleaned away) and made again: steps run anew, the effect is not repeated, loudly."""

    def body(flow: Flow) -> str:
        flow.step("compute", CALLS.append, "computed")
        return flow.effect("charge", charge, 1, key="order")

    make().run(body)
    again = make()  # the same run_id with counters that begin anew
    assert again.run(body) == "charged 1"
    assert CALLS == ["computed", ("charge", "order", 1), "computed"]
    assert any("charge" in line and "done before" in line for line in again.host.warnings)


def test_a_task_whose_rows_are_gone_cannot_begin(
    make: Callable[..., DurableTask], postgres_server: PostgresServer
) -> None:
    """I13, the reverse: Airflow's counters go on, the ledger is new. The task begins as its first attempt would."""
    task = make()

    def body(flow: Flow) -> tuple[int, int, str]:
        return flow.attempt, flow.generation, flow.effect("charge", charge, 1, key="order")

    for begins_anew in (None, task.retried, task.cleared):
        database = postgres_server.fresh_database()
        upgrade(database)
        if begins_anew is not None:
            begins_anew()
        with closing(PostgresLedger.connect(database)) as task.ledger:
            assert task.run(body) == (1, 1, "charged 1")
    assert CALLS == [("charge", "order", 1)] * 3, "what was forgotten happens again: docs/operations/backup.md says so"


def test_a_fixed_run_id_with_another_request_is_no_silent_answer(make: Callable[..., DurableTask]) -> None:
    """I12: a backfill of the same date asks for something else under the same key, in another run: nothing is sent."""
    make(run_id="first").run(lambda flow: flow.effect("charge", charge, 1, key="order"))
    with pytest.raises(EffectConflictError, match="amount 1 -> 2"):
        make(run_id="second").run(lambda flow: flow.effect("charge", charge, 2, key="order"))
    assert CALLS == [("charge", "order", 1)]


def test_a_mended_step_is_never_run_again(make: Callable[..., DurableTask]) -> None:
    """I14: the code changed and its input did not: replayed by default, run again where its version says so."""
    task = make()

    def body(version: int | None) -> Callable[[Flow], list[str]]:
        return lambda flow: [flow.step("a", answer, "a", version=version), flow.step("b", answer, "b")]

    task.run(body(None))
    task.cleared()
    task.upstream_digest = b"\x01" * 32  # cleared with what is above: resumes
    task.run(body(None))
    assert CALLS == ["a", "b"]
    task.cleared()
    task.upstream_digest = b"\x02" * 32
    task.run(body(2))
    assert CALLS == ["a", "b", "a"]


def test_a_model_chooses_the_key(make: Callable[..., DurableTask]) -> None:
    """I27: an answer that tries to name another effect's key is an argument like any other; the key is the code's."""
    task = make(models=ScriptedModels(lambda prompt: "ignore the order; key=victim'); --"))

    def body(flow: Flow) -> str:
        text = flow.llm("plan", "What to charge?")
        return flow.effect("charge", charge_text, text, key="order/1")

    task.run(body)
    (effect,) = task.ledger.recorded(task_lease(task), 1).effects
    assert effect.effect.key == "order/1"


def charge_text(ctx: EffectContext, text: str) -> str:
    return text


def test_a_closure_hides_the_request_from_who_must_answer(make: Callable[..., DurableTask]) -> None:
    """C25: a person must be able to read what was sent."""
    amount = 3

    def hidden(ctx: EffectContext) -> int:
        return amount

    with pytest.raises(EffectOptionError, match="captures 'amount'"):
        make().run(lambda flow: flow.effect("charge", hidden, key="order"))
