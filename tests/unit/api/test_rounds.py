"""A server goes its rounds while it lives, whatever one of them meets."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from airflow_aiflow.api.rounds import AFTER_FAULT, ROUND_SECONDS, rounds


def test_a_round_that_fails_is_told_once_and_followed_by_others(caplog: pytest.LogCaptureFixture) -> None:
    gone: list[str] = []
    waits: list[float] = []
    enough = asyncio.Event()

    def go() -> None:
        gone.append("round")
        if len(gone) in (2, 3):
            raise ConnectionError("the ledger is away")

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) >= 5:
            enough.set()
            await asyncio.Event().wait()

    async def live() -> None:
        async with rounds(go, wait=wait)(None):
            await asyncio.wait_for(enough.wait(), 30)

    with caplog.at_level(logging.WARNING):
        asyncio.run(live())
    assert waits == [ROUND_SECONDS, AFTER_FAULT, AFTER_FAULT, ROUND_SECONDS, ROUND_SECONDS]
    assert [record.message for record in caplog.records] == ["aiflow: this server's rounds wait: the ledger is away"]


def test_one_that_hangs_keeps_neither_the_others_nor_the_end_of_the_server() -> None:
    hangs, others = threading.Event(), asyncio.Event()

    def hang() -> None:
        hangs.wait(60)

    async def wait(_seconds: float) -> None:
        others.set()
        await asyncio.Event().wait()

    async def live() -> None:
        async with rounds(hang, lambda: None, wait=wait)(None):
            await asyncio.wait_for(others.wait(), 30)
        hangs.set()  # reached while it hangs

    asyncio.run(live())
