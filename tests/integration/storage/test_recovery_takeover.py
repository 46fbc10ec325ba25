"""A standby takes the ledger over without being started anew: whose lease lapsed meanwhile gets time to renew it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from airflow_aiflow.durable.recover import RecoveryPolicy, decide
from airflow_aiflow.durable.stall import Evidence, Leave, Requeue, Seen
from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.postgres_binaries import find_binaries
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres_recovery import LONGEST_LEASE
from tests.contract.ledger_world import take
from tests.integration.storage.recovery_world import RecoveryWorld, Task

PATIENCE = 60.0


class Standby(PostgresServer):
    """Be a copy that follows another server; it has that one's roles and can't be written to."""

    def _provision(self) -> None:
        pass


def owner_of(server: PostgresServer) -> str:
    return server.dsn(postgres_roles.AIFLOW, postgres_roles.AIFLOW_OWNER)


def superuser(server: PostgresServer) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(server.dsn("postgres", postgres_roles.SUPERUSER), autocommit=True)


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Standby]]:
    """Give a server with a ledger, and a standby of it."""
    copier = find_binaries(None).folder / "pg_basebackup"
    if not copier.exists():
        pytest.skip(f"a standby is made by pg_basebackup, which is not in {copier.parent}")
    folder = tmp_path_factory.mktemp("pair")
    first, second = PostgresServer(folder / "first"), Standby(folder / "second")
    try:
        first.start()
        migrate.upgrade(owner_of(first))
        second.folder.mkdir(mode=0o700)
        shutil.copy(first.folder / "passwords.json", second.folder)
        address = first.dsn("postgres", postgres_roles.SUPERUSER)
        command = [str(copier), "-D", str(second.data), "-R", "-X", "stream", "-c", "fast", "-d", address]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        second.start()
        yield first, second
    finally:
        second.stop()
        first.stop()


def caught_up(first: PostgresServer, second: Standby) -> None:
    """Wait until the standby knows all that was committed."""
    with superuser(first) as one, superuser(second) as other:
        [(at,)] = one.execute("select pg_current_wal_lsn()").fetchall()

        def there() -> bool | None:
            [(found,)] = other.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", [at]).fetchall()
            return bool(found) or None

        wait_for(there, "the standby to know everything", PATIENCE)


def decided(task: Task) -> Leave | Requeue:
    """Decide on a task that Airflow holds for running."""
    stall = task.stall
    assert not stall.leased
    counters = stall.counters
    what = decide(Evidence(stall, Seen(counters.ti_id, "running", counters.try_number)), RecoveryPolicy())
    assert isinstance(what, Leave | Requeue)
    return what


def test_who_could_not_renew_a_lease_while_the_ledger_moved_is_not_requeued_at_once(
    pair: tuple[PostgresServer, Standby],
) -> None:
    first, second = pair
    before = RecoveryWorld(first.dsn(), owner_of(first))
    tasks = [Task(before, task_id=name) for name in ("dead", "at_work", "silent")]
    dead, at_work, silent = tasks
    dead.next()
    before.pass_time(100)
    for one in (at_work, silent):
        one.tries = 1
        one.taken = take(before.ledger, one.attempt(), ttl=2.0)
    assert not any(one.stall.cut_off for one in tasks)
    caught_up(first, second)
    before.close()
    os.kill(first.pid, signal.SIGKILL)
    with superuser(second) as connection:
        assert connection.execute("select pg_promote(true, 60)").fetchall() == [(True,)]

    world = RecoveryWorld(second.dsn(), owner_of(second))
    try:
        for one in tasks:
            one.world = world
        wait_for(lambda: len(world.stalled()) == 3 or None, "all leases to lapse", PATIENCE)
        assert {one.execution.task_id: one.cut_off for one in world.stalled().values()} == {
            "dead": False,
            "at_work": True,
            "silent": True,
        }
        # What had lapsed while the first server was there is believed.
        assert isinstance(decided(dead), Requeue)
        for one in (at_work, silent):
            left = decided(one)
            assert isinstance(left, Leave)
            assert left.check_in == pytest.approx(30.0, abs=1)
            world.recovery.found(one.stall, left)
        assert at_work.beat()
        assert at_work.stall.leased
        # As old as the notes that were made just now: what is silent still is believed then.
        world.behind.execute("update aiflow.incident set basis_at = basis_at - interval '31 s'")
        assert isinstance(decided(silent), Requeue)
        # What lapses long after is no matter of the fail-over.
        world.behind.execute(
            "update aiflow.lease set expires_at = pg_last_xact_replay_timestamp() + make_interval(secs => %s)",
            [LONGEST_LEASE + 1],
        )
        assert not silent.stall.cut_off
    finally:
        world.close()
