"""
A ledger and an Airflow in memory, for looks and deeds: what was asked and done can be read from them.

The real ledger is held to the same in tests/integration and tests/contract, the real Airflow in tests/airflow.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from airflow_aiflow.durable.attempt import Counters, Owner
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recovery_port import RecoveryLedger, Scan
from airflow_aiflow.durable.stall import Decision, History, Incident, Leave, Pulse, Stall, StallKind
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.hooks.airflow_api import AirflowApi

#: The server's time in these tests.
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
#: Nobody's machine, so that no process here is asked about.
ELSEWHERE = Owner("worker-7", "another boot", 4026531836, 4711, 99, "")


def ti_id(number: int, *, made: datetime = NOW - timedelta(minutes=30)) -> UUID:
    """Make an id as Airflow does: the time is in it."""
    return UUID(int=(int(made.timestamp() * 1000) << 80) | (7 << 76) | number)


def stalled(number: int = 1, *, map_index: int = -1, run_id: str = "run", **parts: Any) -> Stall:
    """Make an execution of ``billing``'s task ``pay`` whose lease lapsed ten seconds ago."""
    plain: dict[str, Any] = {
        "execution_pk": number,
        "execution": ExecutionId("billing", run_id, "pay", map_index),
        "fence": 1,
        "state": ExecutionState.RUNNING,
        "counters": Counters(ti_id(number), try_number=1, max_tries=0, retries=0, clear_number=0, run_after=None),
        "owner": ELSEWHERE,
        "since": 60.0,
        "lease_left": -10.0,
        "idle": 40.0,
    }
    return Stall(**(plain | parts))


class LedgerDouble:
    """Implement ``RecoveryLedger`` over a list of stalls."""

    def __init__(self, *stalls: Stall) -> None:
        self.stalls = list(stalls)
        self.marked: dict[int, int] = {}
        self.states: dict[int, str] = {}
        self.notes: list[tuple[ExecutionId, Decision]] = []
        self.told: list[Incident] = []
        self.reaped: list[float] = []
        self.abandoned: list[ExecutionId] = []
        self.heard_of: list[ExecutionId] = []
        self.broken: list[tuple[int, int, ExecutionId]] = []
        self.noted_before: set[tuple[ExecutionId, StallKind]] = set()
        self.clears: list[int] = []
        self.owners: list[tuple[int, int, Owner]] = []
        self.the_pulse = Pulse()
        self.dags = {"billing"}

    def port(self) -> RecoveryLedger:
        """Give it as the port; a type checker compares both."""
        return self

    def at_work(self, *, boot_id: str, pid_namespace: int) -> Sequence[tuple[int, int, Owner]]:
        return self.owners

    def stalled(self, scan: Scan, *, dead: Collection[tuple[int, int]] = ()) -> Sequence[Stall]:
        return [one for one in self.stalls if not one.leased or (one.execution_pk, one.fence) in dead]

    def histories(self, stalls: Iterable[Stall]) -> Mapping[int, History]:
        return {}

    def pulse(self) -> Pulse:
        return self.the_pulse

    def found(self, stall: Stall, decision: Decision) -> Incident:
        self.notes.append((stall.execution, decision))
        kind = getattr(decision, "kind", None) or StallKind.DEAD_WORKER
        word = type(decision).__name__.lower()
        return Incident(len(self.notes), stall.execution, stall.fence, kind, word, decision.why, 1.0)

    def noted(self, execution: ExecutionId, kind: StallKind, decision: Decision, *, age: float) -> Incident | None:
        if (execution, kind) in self.noted_before:
            return None
        self.noted_before.add((execution, kind))
        self.notes.append((execution, decision))
        return Incident(len(self.notes), execution, 0, kind, type(decision).__name__.lower(), decision.why, age)

    def mark(
        self, stalls: Sequence[Stall], *, dead: Collection[tuple[int, int]] = (), clears: int = 1
    ) -> Sequence[Stall]:
        self.clears.append(clears)
        free = [one for one in stalls if self.states.get(one.execution_pk, "void") == "void"]
        self.states |= {one.execution_pk: "marked" for one in free}
        return [replace(one, marked=True, marks=one.marks + 1) for one in free]

    def cleared(self, stalls: Sequence[Stall]) -> None:
        self._move(stalls, "cleared")

    def broken_off(self) -> Sequence[tuple[int, int, ExecutionId]]:
        return list(self.broken)

    def made_up(self, broken: Sequence[tuple[int, int]]) -> None:
        self.broken = [one for one in self.broken if one[:2] not in set(broken)]

    def void(self, stalls: Sequence[Stall]) -> None:
        self._move(stalls, "void")

    def _move(self, stalls: Sequence[Stall], state: str) -> None:
        for one in stalls:
            assert one.marks == 1, "a mark is moved by its version"
            self.states[one.execution_pk] = state

    def heard(self, stall: Stall) -> bool:
        self.heard_of.append(stall.execution)
        return True

    def abandon(self, stall: Stall) -> int:
        self.abandoned.append(stall.execution)
        return 0

    def reap_reuse(self, age: float) -> int:
        self.reaped.append(age)
        return 0

    def unalerted(self, limit: int = 100) -> Sequence[Incident]:
        return self.told[:limit]

    def alerted(self, numbers: Iterable[int]) -> None:
        self.told = [one for one in self.told if one.number not in set(numbers)]

    def knows_dag(self, dag_ids: Collection[str]) -> Collection[str]:
        return self.dags & set(dag_ids)

    def execution(self, identity: ExecutionId) -> Stall | None:
        return next((one for one in self.stalls if one.execution == identity), None)

    @property
    def left(self) -> list[str]:
        """Why something was left alone."""
        return [what.why for _, what in self.notes if isinstance(what, Leave)]


class AirflowDouble:
    """Answer as ``AirflowApi`` does, out of rows."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str, int], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.log: list[dict[str, Any]] = []
        self.cleared: list[list[Any]] = []
        self.run_states: dict[tuple[str, str], str] = {}
        self.paused: set[str] = set()
        self.below: dict[str, list[str]] = {}
        self.told_at: datetime | None = NOW
        #: Called before a clear is carried out.
        self.before_clear: Any = lambda: None
        #: Called after a state was set.
        self.after_set: Any = lambda: None
        #: Task instances whose state can't be set.
        self.stuck: set[tuple[str, int]] = set()

    def api(self) -> AirflowApi:
        """Give it as the client: it has the same methods."""
        return cast("AirflowApi", self)

    def put(self, execution: ExecutionId, state: str | None, number: int = 1, **parts: Any) -> None:
        """Have a task instance."""
        key = (execution.dag_id, execution.run_id, execution.task_id, execution.map_index)
        self.rows[key] = {
            "id": str(parts.pop("id", ti_id(number))),
            "dag_id": execution.dag_id,
            "dag_run_id": execution.run_id,
            "task_id": execution.task_id,
            "map_index": execution.map_index,
            "state": state,
            "try_number": 1,
            "queued_when": None,
            "start_date": None,
            "end_date": None,
        } | parts
        self.run_states.setdefault((execution.dag_id, execution.run_id), "running")

    def holds(self, *stalls: Stall, state: str | None = "running") -> None:
        """Have the task instances of stalls, as their attempts know them."""
        for one in stalls:
            self.put(one.execution, state, one.execution_pk)

    def state(self, execution: ExecutionId) -> str | None:
        """Give a task instance's state."""
        key = (execution.dag_id, execution.run_id, execution.task_id, execution.map_index)
        found: str | None = self.rows[key]["state"]
        return found

    def signed(self, event: str, stall: Stall, *, try_number: int = 1) -> None:
        """Have an entry of Airflow's own."""
        one = stall.execution
        ids = {"run_id": one.run_id, "task_id": one.task_id, "map_index": one.map_index, "try_number": try_number}
        entry = {"event": event, "when": NOW.isoformat(), "owner": "airflow", "extra": None, "dag_id": one.dag_id}
        self.log.append(entry | ids)

    def person(self, event: str, at: datetime = NOW, **sent: Any) -> None:
        """Have an entry in the audit log."""
        ids = {name: sent.pop(name, None) for name in ("run_id", "task_id")}
        entry = {"event": event, "when": at.isoformat(), "owner": "ada", "extra": json.dumps(sent)}
        self.log.append(entry | {"dag_id": "billing"} | ids)

    def task_instances(
        self,
        dag_id: str,
        run_id: str,
        *,
        task_id: str | None = None,
        map_indexes: Collection[int] = (),
        states: Collection[str] = (),
    ) -> Iterator[dict[str, Any]]:
        self.asked.append(f"task_instances {dag_id} {run_id} {task_id or ','.join(states)}")
        if dag_id != "~" and (dag_id, run_id) not in self.run_states:
            raise AirflowRefusedError("GET", run_id, 404, "not found")
        for row in sorted(self.rows.values(), key=lambda row: str(row["id"])):
            fits = dag_id == "~" or (row["dag_id"], row["dag_run_id"]) == (dag_id, run_id)
            fits = fits and (task_id is None or row["task_id"] == task_id)
            fits = fits and (not map_indexes or row["map_index"] in map_indexes)
            if fits and (not states or row["state"] in states):
                yield dict(row)

    def running_runs(self) -> Iterator[dict[str, Any]]:
        for (dag_id, run_id), state in self.run_states.items():
            if state == "running":
                yield {"dag_id": dag_id, "dag_run_id": run_id, "start_date": ago(7200), "queued_at": None}

    def event_logs(self, events: Iterable[str], *, after: datetime, **wanted: str) -> Iterator[dict[str, Any]]:
        kinds = list(events)
        self.asked.append(f"event_logs {wanted.get('run_id', 'all')}")
        for entry in self.log:
            fits = entry["event"] in kinds and datetime.fromisoformat(entry["when"]) > after
            if fits and all(entry.get(name) == value for name, value in wanted.items()):
                yield entry

    def dag(self, dag_id: str) -> dict[str, Any]:
        self.asked.append(f"dag {dag_id}")
        return {"is_paused": dag_id in self.paused}

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        return {"state": self.run_states[(dag_id, run_id)]}

    def set_run_state(self, dag_id: str, run_id: str, state: str, *, by: str) -> None:
        assert by == "aiflow-recovery"
        self.run_states[(dag_id, run_id)] = state

    def tasks(self, dag_id: str) -> list[dict[str, Any]]:
        return [{"task_id": one, "downstream_task_ids": below} for one, below in self.below.items()]

    def set_state(
        self, dag_id: str, run_id: str, instances: Iterable[tuple[str, int]], state: str
    ) -> list[dict[str, Any]]:
        self.asked.append("set_state")
        troubles = []
        for task_id, index in instances:
            if (task_id, index) in self.stuck:
                troubles.append({"error": "no such task"})
                continue
            self.rows[(dag_id, run_id, task_id, index)]["state"] = state
        self.after_set()
        return troubles

    def clear(
        self,
        dag_id: str,
        run_id: str,
        *,
        task_ids: list[Any],
        dry_run: bool,
        prevent_running_task: bool,
        by: str,
    ) -> list[dict[str, Any]]:
        self.asked.append("clear")
        self.before_clear()
        assert (dry_run, prevent_running_task, by) == (False, True, "aiflow-recovery")
        for one in task_ids:
            task_id, index = (one, -1) if isinstance(one, str) else one
            row = self.rows[(dag_id, run_id, task_id, index)]
            if row["state"] == "running":
                raise AirflowRefusedError("POST", run_id, 409, "it runs")
            row["state"] = None
        self.cleared.append(task_ids)
        return []


def ago(seconds: float) -> str:
    """Give a time in ISO form."""
    return (NOW - timedelta(seconds=seconds)).isoformat()
