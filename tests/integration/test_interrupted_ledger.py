"""Signals that raise while the real ledger's driver and pool are at work in the main thread."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from airflow_aiflow.exceptions import StepTimeoutError
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask

pytestmark = pytest.mark.timeout(240)

RAN: list[int] = []


class Told(BaseException):
    """Stand for what Airflow raises where a task is told to end."""


@pytest.fixture
def ledger(postgres_server: PostgresServer) -> Iterator[PostgresLedger]:
    """Give a ledger whose pool has no connection to spare."""
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    ledger = PostgresLedger.connect(dsn, pool_size=2)
    try:
        yield ledger
    finally:
        ledger.close()


def work(n: int) -> int:
    RAN.append(n)
    return n


def send(ctx: EffectContext, n: int) -> str:
    return f"{ctx.key} {n}"


def nested(n: int) -> list[int]:
    return [current_flow().step("inner", work, 1000 * n + i) for i in range(15)]


def test_deadlines_lose_no_connection_and_no_result(ledger: PostgresLedger) -> None:
    RAN.clear()
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    timeouts = 0

    def body(f: Flow) -> None:
        nonlocal timeouts
        for n in range(40):
            try:
                got = f.step("outer", nested, n, timeout=dice.uniform(0.001, 0.02))
            except StepTimeoutError:
                timeouts += 1
                got = f.step("outer", nested, n)
            assert got == [1000 * n + i for i in range(15)]

    DurableTask(ledger=ledger, clock=SystemClock()).run(body)
    assert timeouts > 5
    # A step is run again only where the deadline fell between its call and its end, never after its record.
    assert len(RAN) - len(set(RAN)) <= timeouts


def test_a_process_that_is_told_to_end_again_and_again_repeats_no_recorded_step(ledger: PostgresLedger) -> None:
    """Each attempt is struck at a random moment; what it recorded is never run again."""
    RAN.clear()
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    task = DurableTask(ledger=ledger, clock=SystemClock())

    def tell(_number: int, _frame: FrameType | None) -> None:
        raise Told

    def body(f: Flow) -> int:
        for n in range(60):
            f.step("s", work, n)
            f.effect("e", send, n, key=f"k{n}", on_in_doubt="retry")
        return f.attempt

    before = signal.signal(signal.SIGTERM, tell)
    told = 0
    try:
        for _ in range(12):
            timer = threading.Timer(dice.uniform(0.02, 0.08), os.kill, (os.getpid(), signal.SIGTERM))
            timer.start()
            try:
                task.run(body)
                timer.join()
            except Told:
                told += 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told > 0
    assert task.run(body) > told
    assert sorted(set(RAN)) == list(range(60))
    # A blow may fall inside the call itself; none costs more than that call.
    assert len(RAN) - 60 <= told
