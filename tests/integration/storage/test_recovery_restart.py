"""The ledger's server goes away in the middle of requeuing: nothing is lost, and nothing is requeued twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy, decide, throttle
from airflow_aiflow.durable.recovery_port import RecoveryLedger, Scan
from airflow_aiflow.durable.stall import Evidence, Leave, Requeue, Seen, Stall
from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres_recovery import MARK_SECONDS
from tests.integration.storage.recovery_world import RecoveryWorld, Task

RUNS, TASKS = 25, 10


class Airflow:
    """Be Airflow, as far as recovery sees it: each task instance has failed, and waits for a try once it is cleared."""

    def __init__(self) -> None:
        self.clears: Counter[ExecutionId] = Counter()

    def seen(self, stall: Stall) -> Seen:
        """Say what it says."""
        state = "scheduled" if self.clears[stall.execution] else "failed"
        return Seen(stall.counters.ti_id, state, stall.counters.try_number)


class Server:
    """Be a server that can be killed and started again at its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running = PostgresServer(folder)
        self.running.start()
        migrate.upgrade(self.owner)

    @property
    def owner(self) -> str:
        """The address of the tables' owner."""
        return self.running.dsn(postgres_roles.AIFLOW, postgres_roles.AIFLOW_OWNER)

    def kill(self, recovery: RecoveryLedger) -> None:
        """
        End it as a crash does.

        :raises LedgerUnavailableError: as soon as its children have noticed, too.
        """
        os.kill(self.running.pid, signal.SIGKILL)
        for _ in range(100_000):
            recovery.pulse()

    def start_again(self) -> None:
        """Start what was killed."""
        port = self.running.port
        self.running.stop()
        self.running = PostgresServer(self.folder, port=port)
        self.running.start()


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Give a server of the test's own."""
    made = Server(tmp_path_factory.mktemp("restart") / "pg")
    yield made
    made.running.stop()


def one_pass(
    recovery: RecoveryLedger, airflow: Airflow, *, settled: float, kill_at: dict[int, str], server: Server
) -> int:
    """
    Do what recovery does, and let the server die at some runs.

    :return: how many executions looked stalled.
    """
    policy, found = RecoveryPolicy(), recovery.stalled(Scan(settled=settled))
    decided = [(one, decide(one, policy)) for one in (Evidence(stall, airflow.seen(stall)) for stall in found)]
    wishes = [(one, what) for one, what in decided if isinstance(what, Requeue)]
    granted = throttle(wishes, recovery.pulse(), policy) if wishes else []
    for one, what in (*granted, *((one, what) for one, what in decided if isinstance(what, Leave))):
        if isinstance(what, Leave):
            recovery.found(one.stall, what)
    runs: dict[str, list[tuple[Stall, Requeue]]] = {}
    for one, what in granted:
        if isinstance(what, Requeue):
            runs.setdefault(one.stall.execution.run_id, []).append((one.stall, what))
    for number, wanted in enumerate(runs.values()):
        if kill_at.get(number) == "before the mark":
            server.kill(recovery)
        marked = recovery.mark([stall for stall, _ in wanted])
        if kill_at.get(number) == "before the clear":
            server.kill(recovery)
        airflow.clears.update(stall.execution for stall in marked)
        if kill_at.get(number) == "after the clear":
            server.kill(recovery)
        recovery.cleared(marked)
        for stall in marked:
            recovery.found(stall, wanted[0][1])
    return len(found)


def test_a_server_that_restarts_in_the_middle_of_requeuing_250_requeues_each_once(server: Server) -> None:
    """C34: the next passes do what the one that met the restart could not, and it says that it could not."""
    airflow = Airflow()
    world = RecoveryWorld(server.running.dsn(), server.owner)
    tasks = [Task(world, run_id=f"run-{number // TASKS}", map_index=number) for number in range(RUNS * TASKS)]
    for task in tasks:
        task.next()
    world.pass_time(100)
    for number, where in enumerate(("before the mark", "before the clear", "after the clear")):
        with pytest.raises(LedgerUnavailableError):
            one_pass(world.recovery, airflow, settled=0.0, kill_at={4: where}, server=server)
        assert len(airflow.clears) == TASKS * (4 * (number + 1) + (where == "after the clear"))
        server.start_again()
        # Who could not renew its lease meanwhile is not taken for dead.
        assert one_pass(world.recovery, airflow, settled=30.0, kill_at={}, server=server) == 0
        world.close()
        world = RecoveryWorld(server.running.dsn(), server.owner)
        world.pass_time(MARK_SECONDS + 1)
    try:
        looked = [one_pass(world.recovery, airflow, settled=0.0, kill_at={}, server=server) for _ in range(2)]
        assert looked[0] >= len(tasks) - 13 * TASKS
        assert looked[1] == 0
        assert airflow.clears == Counter({task.execution: 1 for task in tasks})
        for task in tasks[::TASKS]:
            task.world = world
            task.cleared()
            assert task.next().requeued
            assert [row[1] for row in world.marks(task.pk)] == ["consumed"]
    finally:
        world.close()
