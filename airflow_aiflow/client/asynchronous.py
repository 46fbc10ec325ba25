"""
The client for asyncio: the same methods, awaitable. There is one implementation; its calls wait in threads.

A client follows as many streams at once as its threads allow; whoever follows hundreds uses ``GET /events`` for many.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from airflow_aiflow.client.protocol import Event
from airflow_aiflow.client.synchronous import AiflowClient

T = TypeVar("T")


class AsyncAiflowClient:
    """
    Speak to one Airflow.

    :param base_url: its address.
    :param threads: requests and streams at once.
    :param options: as for ``AiflowClient``.
    """

    def __init__(self, base_url: str, *, threads: int = 16, **options: Any) -> None:
        self._client = AiflowClient(base_url, **options)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="aiflow-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give the connections back. The tasks go on."""
        self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def submit(self, pipeline: str, input: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Hand in a task, or find the one that is there; see ``AiflowClient.submit``."""
        return await self._run(partial(self._client.submit, pipeline, input, **more))

    async def get(self, submission_id: str | UUID) -> dict[str, Any]:
        """Tell how a submission stands."""
        return await self._run(partial(self._client.get, submission_id))

    async def list(self, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """List submissions, the newest first; see ``AiflowClient.list``."""
        found = self._client.list(**filters)
        while (one := await self._run(partial(next, found, None))) is not None:
            yield one

    async def cancel(self, submission_id: str | UUID) -> dict[str, Any]:
        """End a submission between two steps."""
        return await self._run(partial(self._client.cancel, submission_id))

    async def pause(self, submission_id: str | UUID) -> dict[str, Any]:
        """Let nothing more of a submission start."""
        return await self._run(partial(self._client.pause, submission_id))

    async def resume(self, submission_id: str | UUID) -> dict[str, Any]:
        """Let a paused submission go on where it was."""
        return await self._run(partial(self._client.resume, submission_id))

    async def retry(self, submission_id: str | UUID) -> dict[str, Any]:
        """Run a finished submission again."""
        return await self._run(partial(self._client.retry, submission_id))

    async def wait(self, submission_id: str | UUID, **options: Any) -> dict[str, Any]:
        """Wait for the end; see ``AiflowClient.wait``."""
        return await self._run(partial(self._client.wait, submission_id, **options))

    async def result(self, submission_id: str | UUID) -> Any:
        """Give the result of one that has succeeded."""
        return await self._run(partial(self._client.result, submission_id))

    async def submit_and_wait(self, pipeline: str, input: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """Hand in a task and give its result; see ``AiflowClient.submit_and_wait``."""
        return await self._run(partial(self._client.submit_and_wait, pipeline, input, **more))

    async def stream(self, submission_id: str | UUID, *, after: str | None = None) -> AsyncIterator[Event]:
        """Follow a submission to its end; see ``AiflowClient.stream``."""
        events = self._client.stream(submission_id, after=after)
        try:
            while (event := await self._run(partial(next, events, None))) is not None:
                yield event
        finally:
            with suppress(ValueError):  # a thread still waits in it, and ends with the connection's silence
                await self._run(events.close)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
