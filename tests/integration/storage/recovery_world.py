"""A real ledger with recovery's side of it, in which a test lets time pass, and values for what recovery looks at."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow_aiflow.durable.attempt import Attempt, OnClear
from airflow_aiflow.durable.execution import Taken
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.record import Batch, EventRecord
from airflow_aiflow.durable.recovery_port import RecoveryLedger, Scan
from airflow_aiflow.durable.stall import Stall
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
from tests.contract.ledger_world import PostgresWorld, a_step, an_attempt, an_execution, take

#: What a look at a server finds that is up for long.
SCAN = Scan(settled=0.0)

_AGE = (
    (
        "update aiflow.execution set finished_at = finished_at - %(past)s, created_at = created_at - %(past)s,"
        " heard_at = heard_at - %(past)s"
    ),
    "update aiflow.requeue set at = at - %(past)s",
    (
        "update aiflow.incident set found_at = found_at - %(past)s, basis_at = basis_at - %(past)s,"
        " decided_at = decided_at - %(past)s, look_again_at = look_again_at - %(past)s,"
        " alerted_at = alerted_at - %(past)s"
    ),
)


class RecoveryWorld(PostgresWorld):
    """
    Be a ledger, and recovery.

    :param dsn: address for the role that tasks use.
    :param owner: address for the tables' owner.
    """

    def __init__(self, dsn: str, owner: str) -> None:
        super().__init__(dsn, owner)
        self.connections = Connections(dsn, 8)
        self.recovery: RecoveryLedger = PostgresRecovery(self.connections)

    def pass_time(self, seconds: float) -> None:
        """Move every moment that is written into the past, recovery's too."""
        super().pass_time(seconds)
        with self.behind.transaction():
            for statement in _AGE:
                self.behind.execute(statement, {"past": timedelta(seconds=seconds)})

    def close(self) -> None:
        """Close everything."""
        self.connections.close()
        self.ledger.close()
        super().close()

    def stalled(self, **parts: Any) -> dict[ExecutionId, Stall]:
        """Look."""
        dead = parts.pop("dead", ())
        return {one.execution: one for one in self.recovery.stalled(replace(SCAN, **parts), dead=dead)}

    def as_it_stands(self, execution: ExecutionId) -> Stall:
        """Give an execution that is known."""
        found = self.recovery.execution(execution)
        assert found is not None
        return found

    def marks(self, execution_pk: int) -> list[tuple[int, str, int, int, int]]:
        """Give (fence, state, clear number seen, up to which, clears) of each mark."""
        return self.behind.execute(
            "select fence, state::text, clear_number, clear_until, clears from aiflow.requeue where execution_id = %s"
            " order by fence",
            [execution_pk],
        ).fetchall()

    def forget(self) -> None:
        """Take everything away that another test left to be found."""
        self.behind.execute(
            "truncate aiflow.execution, aiflow.lease, aiflow.attempt, aiflow.requeue, aiflow.incident cascade"
        )


class Task:
    """
    Be a task whose attempts come and go.

    :param world: where.
    :param parts: of its execution.
    """

    def __init__(self, world: RecoveryWorld, **parts: Any) -> None:
        self.world = world
        self.execution = an_execution(**parts)
        self.tries = 0
        self.clear_number = 0
        self.max_tries = 3
        self.taken: Taken | None = None

    def next(self, **parts: Any) -> Taken:
        """Begin Airflow's next try, after an automatic retry unless it was cleared."""
        self.tries += 1
        self.taken = take(self.world.ledger, self.attempt(**parts))
        return self.taken

    def attempt(self, on_clear: OnClear = "auto", **parts: Any) -> Attempt:
        """Describe the try."""
        own = {name: parts.pop(name) for name in ("recovery", "max_recoveries") if name in parts}
        counters = {"clear_number": self.clear_number, "max_tries": self.max_tries} | parts
        return replace(an_attempt(self.execution, self.tries, **counters), on_clear=on_clear, **own)

    def cleared(self, times: int = 1) -> None:
        """Let somebody clear it."""
        self.clear_number += times
        self.max_tries += 1

    def step(self, name: str = "page", **parts: Any) -> None:
        """Record a step."""
        assert self.taken is not None
        lease = self.taken.lease
        step = a_step(name, fence=lease.fence, **parts)
        event = EventRecord("step", b'{"name":"%s","kind":"step"}' % name.encode())
        seq = self.world.behind.execute(
            "select coalesce(max(seq), 0) + 1 from aiflow.event where execution_id = %s and fence = %s",
            [lease.execution_pk, lease.fence],
        ).fetchall()[0][0]
        self.world.ledger.record(lease, self.taken.generation, Batch((step,), (event,), first_seq=seq))

    def beat(self, *, idle: float = 0.0, step: str | None = None, step_timeout: float | None = None) -> bool:
        """Send a heartbeat."""
        assert self.taken is not None
        return self.world.ledger.beat(self.taken.lease, ttl=30.0, idle=idle, step=step, step_timeout=step_timeout).held

    def die(self, *, step: str | None = None) -> None:
        """Let the lease lapse, ten seconds ago."""
        if step is not None:
            self.beat(step=step)
        self.world.pass_time(40.0)

    @property
    def pk(self) -> int:
        """Its row."""
        assert self.taken is not None
        return self.taken.lease.execution_pk

    @property
    def stall(self) -> Stall:
        """It, as it stands."""
        return self.world.as_it_stands(self.execution)
