"""Play the part of Airflow and its workers for submissions: runs go step by step, as a test wants them to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.integration.api.conftest import World

PATIENCE = 60.0

Deed = Callable[[Flow], object]


class Stage:
    """
    Hold the runs of one world.

    :param world: an app and its ledger.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = PostgresLedger.connect(world.dsn, tells=True)
        self._deeds: dict[str, queue.Queue[tuple[Deed | None, threading.Event]]] = {}
        self._threads: list[threading.Thread] = []

    def begin(self, run_id: str) -> None:
        """Let the run's task begin, or its next attempt."""
        never = threading.Event()
        while run_id not in self.world.runs.runs:  # made once the client has its answer
            never.wait(0.01)
        self.world.runs.runs[run_id].state = "running"
        deeds: queue.Queue[tuple[Deed | None, threading.Event]] = queue.Queue()
        self._deeds[run_id] = deeds
        task = DurableTask(ledger=self.ledger, clock=SystemClock(), dag_id="answer", run_id=run_id, task_id="run")

        def body(flow: Flow) -> str:
            while True:
                deed, done = deeds.get()
                try:
                    if deed is None:
                        return "done"
                    deed(flow)
                finally:
                    done.set()

        def play() -> None:
            with suppress(ValueError):  # the author's: this attempt has failed
                task.run(body)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        self._threads.append(thread)

    def emit(self, run_id: str, *numbers: int) -> None:
        """Let the task emit numbers, each by itself."""
        for number in numbers:
            self.do(run_id, partial(_tick, number))

    def do(self, run_id: str, deed: Deed | None) -> None:
        """Let the task do something; ``None``: end."""
        done = threading.Event()
        self._deeds[run_id].put((deed, done))
        assert done.wait(PATIENCE)

    def fail(self, run_id: str) -> None:
        """Let the attempt at work fail."""

        def raises(flow: Flow) -> None:
            raise ValueError("the author's")

        self.do(run_id, raises)
        for thread in self._threads:
            thread.join(PATIENCE)

    def end(self, run_id: str, result: Any = "because", state: str = "success") -> None:
        """Let the run end."""
        self.do(run_id, None)
        self.world.runs.results[run_id] = result
        self.world.runs.runs[run_id].state = state


def _tick(number: int, flow: Flow) -> None:
    flow.emit("tick", number=number)


@contextmanager
def staged(world: World) -> Iterator[Stage]:
    """Give a stage."""
    made = Stage(world)
    try:
        yield made
    finally:
        for deeds in made._deeds.values():
            deeds.put((None, threading.Event()))
        for thread in made._threads:
            thread.join(PATIENCE)
        made.ledger.close()
