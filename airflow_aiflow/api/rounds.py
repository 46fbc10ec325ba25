"""
What an API server does by itself, every few seconds: make runs that were left unmade, bring on what was cancelled, note
ends that somebody is to be told of, tell them.

Every worker of every server does so; each step may be taken twice. Where no server lives, recovery does the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread

log = logging.getLogger(__name__)

#: Seconds between two rounds: a cancelled run waits for one of them after its last step.
ROUND_SECONDS = 2.0

#: Seconds that the server which wrote a row gets to make its run.
LEFT_SECONDS = 10.0

#: Seconds between two looks for uploads that nobody used: they have expired for an hour by then.
REAP_SECONDS = 300.0

#: Seconds after a round that failed: the ledger may be away, or not configured at all.
AFTER_FAULT = 30.0


def rounds(*goes: Callable[[], None], wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> Any:
    """
    Make the lifespan of an app that goes its rounds.

    :param goes: what one round does, each in a thread and at a pace of its own.
    :param wait: waits some seconds.
    """

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(_go_on(go, wait)) for go in goes]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return lifespan


async def _go_on(go: Callable[[], None], wait: Callable[[float], Awaitable[None]]) -> None:
    told = ""
    while True:
        pause = ROUND_SECONDS
        try:
            # Not waited for when the server stops: a step that was begun may be taken again.
            await anyio.to_thread.run_sync(go, abandon_on_cancel=True)
            told = ""
        except Exception as error:  # the next round makes up for it
            pause = AFTER_FAULT
            if str(error) != told:  # once, not for ever
                told = str(error)
                log.warning("aiflow: this server's rounds wait: %s", error)
        await wait(pause)


class ServerRound:
    """
    Go one round, with what this deployment has configured.

    :param clock: gives seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reaped = float("-inf")

    def __call__(self) -> None:
        """Go one round."""
        from airflow_aiflow.api.serving_submissions import desk, service
        from airflow_aiflow.hooks.aiflow import AiflowHook

        ours = service()
        ours.heal(older_than=LEFT_SECONDS)
        ours.press_on()
        if self._clock() - self._reaped >= REAP_SECONDS:
            self._reaped = self._clock()
            uploads = desk()
            if uploads is not None:
                uploads.reap()
            AiflowHook().cursors().reap()


def tell_ends() -> None:
    """Send the callbacks that are due: a receiver that hangs must not keep anything else waiting."""
    from airflow_aiflow.config import callback_rules
    from airflow_aiflow.hooks.aiflow import AiflowHook
    from airflow_aiflow.hooks.callback_post import CallbackPost, deliver_due

    rules = callback_rules()
    if rules is not None:
        deliver_due(AiflowHook().callbacks(), rules, CallbackPost())
