"""What may wait long has threads of its own: used up, it holds up nobody else, and who finds no place is told."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fastapi import HTTPException
from fastapi.concurrency import run_in_threadpool

from airflow_aiflow.api import submission_routes
from airflow_aiflow.api.own_threads import OwnThreads


def test_slow_calls_keep_no_shared_thread_and_have_an_end() -> None:
    """More of them than an API server has shared threads (40)."""
    go, own = threading.Event(), OwnThreads("uploads under test", 2, waiting=48)

    async def play() -> None:
        slow = [asyncio.create_task(own.run(go.wait, 60)) for _ in range(50)]
        await asyncio.sleep(0)
        try:
            assert await asyncio.wait_for(run_in_threadpool(lambda: "at once"), 20) == "at once"
            with pytest.raises(HTTPException) as refused:
                await own.run(go.is_set)
        finally:
            go.set()
        assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": "5"})
        assert all(await asyncio.gather(*slow))
        assert await own.run(go.is_set)

    asyncio.run(play())


def test_who_comes_at_the_same_moment_is_counted_too() -> None:
    """Each is let in before the last one that was let in waits for its thread."""
    go, own = threading.Event(), OwnThreads("uploads under test", 2, waiting=3)

    async def play() -> None:
        calls = [asyncio.create_task(own.run(go.wait, 60)) for _ in range(9)]
        done, _ = await asyncio.wait(calls, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        refused = len(done)
        go.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert refused == sum(isinstance(each, HTTPException) for each in found) == 4

    asyncio.run(play())


def test_submits_with_uploads_use_them() -> None:
    assert isinstance(submission_routes.TAKING_IN, OwnThreads)
