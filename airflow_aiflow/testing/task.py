"""Attempts of one execution, made as Airflow makes them."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from airflow_aiflow.durable.attempt import NOTHING_ABOVE, Attempt, Counters, OnClear, Owner
from airflow_aiflow.durable.budget import read_budget
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import Form, Inbox, give_word
from airflow_aiflow.durable.ports import ArtifactStore, Clock, Ledger
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AiflowConfigError, AttemptAsks, LedgerError
from airflow_aiflow.llm.call import ModelCaller
from airflow_aiflow.runtime.async_flow import AsyncFlow, run_async
from airflow_aiflow.runtime.attempt_run import open_flow, run_attempt
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.testing.clock import ManualClock
from airflow_aiflow.testing.host import TestingHost
from airflow_aiflow.testing.models import ScriptedModels
from airflow_aiflow.testing.stats import CollectedStats

R = TypeVar("R")

#: When every run of a test was due.
RUN_AFTER = datetime(2026, 1, 1, tzinfo=UTC)


_sequence = itertools.count()


def uuid7() -> UUID:
    """Make an id that sorts after those made before it in this process, as Airflow's task instances do."""
    stamp = (time.time_ns() // 1_000_000 + next(_sequence)) & ((1 << 48) - 1)
    noise = int.from_bytes(os.urandom(10), "big")
    number = (stamp << 80) | noise
    number = (number & ~(0xF << 76)) | (7 << 76)
    return UUID(int=(number & ~(0x3 << 62)) | (0x2 << 62))


class DurableTask:
    """
    Be one task instance of one run, with a ledger and a store of its own unless they are given.

    :param settings: the deployment's.
    :param secrets: texts that Airflow's masker would know.
    :param retries: of the task.
    :param compensate_on_failure: whether effects are taken back where an attempt fails and no further one follows.
    :param budget: of the task's model calls, as ``@task.durable`` takes it; may be changed between attempts.
    :param databases: connection id -> address, of the databases that ``flow.transaction`` may change.
    """

    def __init__(
        self,
        *,
        dag_id: str = "dag",
        run_id: str = "run",
        task_id: str = "task",
        map_index: int = -1,
        ledger: Ledger | None = None,
        store: ArtifactStore | None = None,
        models: ModelCaller | None = None,
        clock: Clock | None = None,
        settings: FlowSettings | None = None,
        secrets: tuple[str, ...] = (),
        retries: int = 3,
        on_clear: OnClear = "auto",
        share_mapped: bool = True,
        compensate_on_failure: bool = False,
        budget: float | str | None = None,
        labels: Mapping[str, str] | None = None,
        databases: Mapping[str, str] | None = None,
    ) -> None:
        self.clock: Clock = clock or ManualClock()
        self.ledger: Ledger = ledger or MemoryLedger(self.clock)
        self.store: ArtifactStore = store or MemoryArtifactStore()
        self.models: ModelCaller = models or ScriptedModels()
        self.host = TestingHost(secrets)
        self.host.databases.update(databases or {})
        #: What its attempts told dashboards.
        self.stats = CollectedStats()
        self.settings = settings or FlowSettings()
        self.execution = ExecutionId(dag_id, run_id, task_id, map_index)
        self._on_clear: OnClear = on_clear
        self._share_mapped = share_mapped
        self._compensate_on_failure = compensate_on_failure
        self.budget = budget
        self.labels = dict(labels or {})
        #: Whether Airflow hears of a success; ``False``: the process is killed in between.
        self.hears = True
        #: What ran above the task; set another value to run it again, ``None`` to make it unreadable.
        self.upstream_digest: bytes | None = NOTHING_ABOVE
        #: What the task asked a person last; ``None``: nothing yet.
        self.form: Form | None = None
        self._next = Counters(
            ti_id=uuid7(), try_number=1, max_tries=retries, retries=retries, clear_number=0, run_after=RUN_AFTER
        )
        self._last = self._next

    @property
    def services(self) -> Services:
        """What an attempt works with."""
        return Services(
            ledger=self.ledger,
            store=lambda: self.store,
            host=self.host,
            settings=self.settings,
            clock=self.clock,
            models=lambda: self.models,
            stats=self.stats,
        )

    def attempt(self) -> Attempt:
        """Describe the attempt that is next, in this process."""
        owner = Owner(
            hostname=socket.gethostname(),
            boot_id="",  # nobody's death can be verified: the lease decides, as between two machines
            pid_namespace=0,
            pid=os.getpid(),
            start=0,
            ti_id=str(self._next.ti_id),
        )
        return Attempt(
            execution=self.execution,
            counters=self._next,
            owner=owner,
            mapped=self.execution.map_index >= 0,
            on_clear=self._on_clear,
            share_mapped=self._share_mapped,
            upstream_digest=self.upstream_digest,
            budget=read_budget(self.budget),
            labels=self.labels,
        )

    def run(self, body: Callable[[Flow], R]) -> R:
        """
        Run one attempt; the next call is Airflow's automatic retry of it.

        :param body: the durable task's body.
        """
        attempt, counters = self.attempt(), self._next
        self._last = self._next
        self.retried()
        leases: list[Lease] = []

        def leased(flow: Flow) -> R:
            leases.append(flow.lease)
            return body(flow)

        try:
            value = run_attempt(
                attempt,
                self.services,
                leased,
                for_good=(lambda _error: counters.try_number > counters.max_tries)
                if self._compensate_on_failure
                else None,
            )
        except AttemptAsks as asks:
            self.form = asks.form
            raise
        if self.hears:
            with contextlib.suppress(LedgerError):
                self.ledger.heard(leases[-1])  # as the listener does, once Airflow has taken the success
        return value

    def run_async(self, body: Callable[[AsyncFlow], Coroutine[Any, Any, R]]) -> R:
        """
        Run one attempt of an ``async def`` task, on an event loop of its own.

        :param body: the durable task's body.
        """
        return self.run(lambda _flow: run_async(body))

    @property
    def inbox(self) -> Inbox:
        """What waits for a person, and where the answers go."""
        from airflow_aiflow.storage.memory_inbox import MemoryInbox

        if not isinstance(self.ledger, MemoryLedger):
            raise AiflowConfigError(
                f"the inbox of a {type(self.ledger).__name__} is its own; here is one in memory alone"
            )
        return MemoryInbox(self.ledger)

    def answer(self, option: str, *, by: str = "ann", note: str = "") -> None:
        """
        Answer what the task asked last, as in its form; the next ``run`` is the same attempt, which goes on.

        :param option: how the option's text begins, such as ``"It happened"``.
        :param by: who answers.
        :param note: the reason, for people.
        :raises LookupError: if nothing was asked, no option begins so, or several do.
        :raises ValueError: if the answer does not count; the message says who was first.
        """
        texts = [] if self.form is None else [text for text in self.form.options if text.startswith(option)]
        if self.form is None or len(texts) != 1:
            there = "nothing was asked" if self.form is None else f"there are {list(self.form.options)}"
            raise LookupError(f"no single option begins with {option!r}: {there}")
        for number, word in self.form.options[texts[0]]:
            said = give_word(self.inbox, number, word, by=by, note=note)
            if not said.counts:
                raise ValueError(f"the answer to #{number} does not count: {said.why}")
        self.same_again()

    def retried(self) -> None:
        """Make the next attempt an automatic retry."""
        self._next = replace(self._next, ti_id=uuid7(), try_number=self._next.try_number + 1)

    def cleared(self) -> None:
        """Make the next attempt one that a person's clear started."""
        done = self._next.try_number - 1
        self._next = replace(self._next, max_tries=done + self._next.retries, clear_number=self._next.clear_number + 1)

    def made_again(self) -> None:
        """Make the next attempt the first one of a run that was deleted and made again."""
        self._next = replace(self._next, ti_id=uuid7(), try_number=1, max_tries=self._next.retries, clear_number=0)

    def same_again(self) -> None:
        """Make the next attempt the last one again, as after a reschedule."""
        self._next = self._last


@contextlib.contextmanager
def flow(**options: Any) -> Iterator[Flow]:
    """
    Give one attempt in memory, for ``with flow() as f: assert my_code(f) == ...``.

    :param options: those of ``DurableTask``.
    """
    task = DurableTask(**options)
    with open_flow(task.attempt(), task.services) as opened:
        yield opened
