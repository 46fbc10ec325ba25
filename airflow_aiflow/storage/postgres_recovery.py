"""
Recovery's side of the ledger in PostgreSQL: each method is one statement of ``sql/`` and one commit, unless it says so.

Only the database's clock is compared. A pass reads by the leases, by ``execution_open`` and by keys: what is done and
heard of costs nothing, however much of it there is.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.durable.identity import ExecutionId, digest
from airflow_aiflow.durable.recovery_port import Scan
from airflow_aiflow.durable.stall import (
    Decision,
    History,
    Incident,
    Leave,
    Pulse,
    Quarantine,
    Requeue,
    Settle,
    Stall,
    StallKind,
)
from airflow_aiflow.storage import recovery_rows
from airflow_aiflow.storage.connections import Params
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.postgres_params import lease_params
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import execution_identity, shown

#: Seconds after which a mark counts as nobody's that was begun and neither carried out nor taken back: longer than the
#: request that follows it may take, shorter than two passes.
MARK_SECONDS = 15.0

#: The longest lease that is thought of, in seconds: one that lapsed so soon after the ledger's server was replaced may
#: be one that could not be renewed.
LONGEST_LEASE = 600.0

#: Attempts of one execution that are looked back on; more recoveries than that nobody allows.
ATTEMPTS = 100

#: Latest events of an execution among which its last step is looked for: else a chatty task would cost a pass.
EVENTS = 200

#: Executions of a task that make its history, those of them whose steps are drawn, and steps of each.
HISTORY_EXECUTIONS, HISTORY_SAMPLED, HISTORY_STEPS = 30, 20, 500

#: Fewer are no history.
HISTORY_LEAST = 5

#: Seconds over which the pulse is taken, and after which an attempt counts as one that lives.
PULSE_SECONDS, KNOWN_SECONDS = 600.0, 60.0

#: Seconds after a requeue until the same fence is looked at again: Airflow brings the next attempt meanwhile.
REQUEUED_SECONDS = 30.0

#: Of the time for which something final is known, what the next look comes after, and at most so many seconds.
FINAL_SLOWER, FINAL_SLOWEST = 0.5, 86_400.0

#: The same for what is paused: a person may take days.
PAUSED_SLOWER, PAUSED_SLOWEST = 0.1, 3_600.0

#: Seconds that a progress may have come late to the ledger, between two looks at what hangs; and a silence below which
#: nothing hangs, whatever the floor is.
HUNG_SLACK, HUNG_LEAST = 1.0, 5.0


#: Seconds for which a requeue is looked at that was broken off, and how many at once: what it left is told by then.
BROKEN_SECONDS, BROKEN_AT_ONCE = 86_400.0, 100

#: Rows of the way to reusable results that one call looks at: some milliseconds, and seven million rows a day.
REAPED_AT_ONCE = 5_000


class PostgresRecovery(LedgerPart):
    """
    Implement the port ``RecoveryLedger``.

    :param connections: lends connections; may be a ledger's own.
    """

    def at_work(self, *, boot_id: str, pid_namespace: int) -> Sequence[tuple[int, int, Owner]]:
        """List the owners of live leases in one pid namespace of one machine."""
        rows = self._ask(statement("recovery_at_work"), {"boot_id": boot_id, "pid_namespace": pid_namespace})
        return [(row[0], row[1], Owner.from_plain(row[2])) for row in rows]

    def stalled(self, scan: Scan, *, dead: Collection[tuple[int, int]] = ()) -> Sequence[Stall]:
        """Find what looks stalled and is not to be left alone for now, the longest first."""
        return self._look(scan, dead=dead)

    def execution(self, identity: ExecutionId) -> Stall | None:
        """Give one execution as it stands; ``None``: it never ran."""
        found = self._look(Scan(), identity=execution_identity(identity))
        return found[0] if found else None

    def _look(
        self, scan: Scan, *, dead: Collection[tuple[int, int]] = (), identity: bytes | None = None
    ) -> list[Stall]:
        params: Params = {
            "identity": identity,
            "dead_executions": [execution for execution, _ in dead],
            "dead_fences": [fence for _, fence in dead],
            "stall_floor": scan.stall_floor,
            "unheard_after": scan.unheard_after,
            "lost_after": scan.lost_after,
            "settled": scan.settled,
            "limit": scan.limit,
            "mark_seconds": MARK_SECONDS,
            "longest_lease": LONGEST_LEASE,
            "attempts": ATTEMPTS,
            "events": EVENTS,
        }
        return [recovery_rows.stall(row) for row in self._ask(statement("recovery_stalled"), params)]

    def histories(self, stalls: Iterable[Stall]) -> Mapping[int, History]:
        """
        Give the histories of these executions' tasks, from recent executions.

        The step in hand has its own where the lease is live: elsewhere nothing is decided on it.
        """
        asked: dict[tuple[str, str, str | None], list[int]] = {}
        for stall in stalls:
            step = stall.step if stall.leased else None
            asked.setdefault((stall.execution.dag_id, stall.execution.task_id, step), []).append(stall.execution_pk)
        if not asked:
            return {}
        params: Params = {
            "dag_ids": [dag_id for dag_id, _, _ in asked],
            "task_ids": [task_id for _, task_id, _ in asked],
            "steps": [step for _, _, step in asked],
            "executions": HISTORY_EXECUTIONS,
            "sampled": HISTORY_SAMPLED,
            "steps_each": HISTORY_STEPS,
            "least": HISTORY_LEAST,
        }
        rows = self._ask(statement("recovery_histories"), params)
        return {
            execution: History(task_p50=p50, step_p95=p95)
            for (_, p50, p95), executions in zip(rows, asked.values(), strict=True)
            for execution in executions
        }

    def pulse(self) -> Pulse:
        """Tell how recovery went of late."""
        params = {"window": PULSE_SECONDS, "known_after": KNOWN_SECONDS}
        [(requeued, died_again, last_minute, probe_ago)] = self._ask(statement("recovery_pulse"), params)
        return Pulse(requeued, died_again, last_minute, probe_ago)

    def found(self, stall: Stall, decision: Decision) -> Incident:
        """Note what was found about one fence and what is decided, and when to look again."""
        if isinstance(decision, Settle):
            return self._settled(stall, decision)
        name, report = recovery_rows.decided(decision)
        slower, slowest = _slower(stall, decision)
        params: Params = {
            "execution_id": stall.execution_pk,
            "fence": stall.fence,
            **_ids(stall.execution),
            "kind": getattr(decision, "kind", None) or recovery_rows.likely_kind(stall),
            "basis": stall.basis,
            "decision": name,
            "why": shown(decision.why),
            "report": report,
            "check_in": _check_in(decision),
            "slower": slower,
            "slowest": slowest,
            "detected_after": recovery_rows.detected_after(stall),
            "evidence": recovery_rows.evidence(stall),
            "goes_on": stall.marked and isinstance(decision, Requeue),
        }
        return recovery_rows.incident(self._ask(statement("recovery_found"), params)[0])

    def _settled(self, stall: Stall, decision: Settle) -> Incident:
        """End an incident, where there is one; number 0: there is none."""
        params = {"why": shown(decision.why), "check_in": REQUEUED_SECONDS}
        rows = self._ask(statement("recovery_settled"), lease_params(Lease(stall.execution_pk, stall.fence)) | params)
        if rows:
            return recovery_rows.incident(rows[0])
        kind, after = recovery_rows.likely_kind(stall), recovery_rows.detected_after(stall)
        return Incident(0, stall.execution, stall.fence, kind, "settle", decision.why, after)

    def noted(self, execution: ExecutionId, kind: StallKind, decision: Decision, *, age: float) -> Incident | None:
        """Note what has no execution in the ledger; ``None``: it was noted before, and is to be left alone for now."""
        name, report = recovery_rows.decided(decision)
        params: Params = {
            "identity": digest("incident", execution_identity(execution), kind.value),
            **_ids(execution),
            "kind": kind,
            "decision": name,
            "why": shown(decision.why),
            "report": report,
            "check_in": _check_in(decision),
            "detected_after": max(0.0, age),
        }
        rows = self._ask(statement("recovery_noted"), params)
        return recovery_rows.incident(rows[0]) if rows else None

    def mark(
        self, stalls: Sequence[Stall], *, dead: Collection[tuple[int, int]] = (), clears: int = 1
    ) -> Sequence[Stall]:
        """
        Mark executions of one run for a requeue; a second statement lets the run's open marks reach over this clear.

        :raises ValueError: if they are of several runs.
        """
        if not stalls:
            return []
        runs = {(stall.execution.dag_id, stall.execution.run_id) for stall in stalls}
        if len(runs) > 1:
            raise ValueError(f"marks are made for one run at a time, got {len(runs)}")
        [(dag_id, run_id)] = runs
        gone = frozenset(dead)
        params: Params = {
            "dag_id": dag_id,
            "run_id": run_id,
            **_versions(stalls),
            "states": [stall.state.value for stall in stalls],
            "marked": [stall.marked for stall in stalls],
            "dead": [(stall.execution_pk, stall.fence) in gone for stall in stalls],
            "idle": [_hangs_for(stall) for stall in stalls],
            "mark_seconds": MARK_SECONDS,
            "clears": clears,
        }
        versions: dict[int, int] = dict(self._ask(statement("recovery_mark"), params))
        if versions:
            self._ask(statement("recovery_reach"), {"dag_id": dag_id, "run_id": run_id})
        return [
            replace(stall, marked=True, marks=versions[stall.execution_pk])
            for stall in stalls
            if stall.execution_pk in versions
        ]

    def cleared(self, stalls: Sequence[Stall]) -> None:
        """Note that Airflow has taken the clear of marked executions, and of all that had failed below them."""
        if stalls:
            self._ask(statement("recovery_cleared"), _versions(stalls))

    def broken_off(self) -> Sequence[tuple[int, int, ExecutionId]]:
        """List requeues whose attempt has begun and of which nobody said that all was cleared."""
        params = {"window": BROKEN_SECONDS, "mark_seconds": MARK_SECONDS, "most": BROKEN_AT_ONCE}
        rows = self._ask(statement("recovery_broken_off"), params)
        return [(row[0], row[1], ExecutionId(*row[2:6])) for row in rows]

    def made_up(self, broken: Sequence[tuple[int, int]]) -> None:
        """Note that nothing of these requeues is left to be done."""
        if broken:
            params = {"executions": [pk for pk, _ in broken], "fences": [fence for _, fence in broken]}
            self._ask(statement("recovery_made_up"), params)

    def void(self, stalls: Sequence[Stall]) -> None:
        """Take marks back: Airflow was not asked, or refused."""
        if stalls:
            self._ask(statement("recovery_void"), _versions(stalls))

    def heard(self, stall: Stall) -> bool:
        """Note that Airflow has heard of a success; ``False``: another attempt took over."""
        return bool(self._ask(statement("heard"), lease_params(Lease(stall.execution_pk, stall.fence))))

    def abandon(self, stall: Stall) -> int:
        """Put the open effects of an execution in doubt that no attempt will visit."""
        return len(self._ask(statement("recovery_abandon"), lease_params(Lease(stall.execution_pk, stall.fence))))

    def unalerted(self, limit: int = 100) -> Sequence[Incident]:
        """List incidents that somebody should hear of and nobody was told, the oldest first."""
        return [recovery_rows.incident(row) for row in self._ask(statement("recovery_unalerted"), {"limit": limit})]

    def alerted(self, numbers: Iterable[int]) -> None:
        """Note that these incidents were told."""
        self._ask(statement("recovery_alerted"), {"numbers": list(numbers)})

    def knows_dag(self, dag_ids: Collection[str]) -> Collection[str]:
        """Say which of these DAGs have executions."""
        return {row[0] for row in self._ask(statement("recovery_knows_dag"), {"dag_ids": list(dag_ids)})}

    def reap_reuse(self, age: float) -> int:
        """Forget where results lie that are older; a slice of them at each call."""
        params = {"from_key": random.randint(-(2**63), 2**63 - 1), "most": REAPED_AT_ONCE, "age": age}
        return len(self._ask(statement("reuse_reap"), params))


def _ids(execution: ExecutionId) -> dict[str, object]:
    return {
        "dag_id": execution.dag_id,
        "run_id": execution.run_id,
        "task_id": execution.task_id,
        "map_index": execution.map_index,
    }


def _versions(stalls: Sequence[Stall]) -> dict[str, object]:
    return {
        "executions": [stall.execution_pk for stall in stalls],
        "fences": [stall.fence for stall in stalls],
        "versions": [stall.marks for stall in stalls],
    }


def _hangs_for(stall: Stall) -> float | None:
    """Say how long a live attempt must still be without progress to be marked; ``None``: its lease must have ended."""
    if not stall.leased or stall.idle is None or stall.idle < HUNG_LEAST:
        return None
    return stall.idle - HUNG_SLACK


def _check_in(decision: Decision) -> float:
    return decision.check_in if isinstance(decision, Leave) else REQUEUED_SECONDS


def _slower(stall: Stall, decision: Decision) -> tuple[float, float]:
    """Say how the time to the next look grows with the time since the first, and up to what."""
    if isinstance(decision, Quarantine) or (isinstance(decision, Leave) and decision.final):
        return FINAL_SLOWER, FINAL_SLOWEST
    if stall.state is ExecutionState.PAUSED and isinstance(decision, Leave):
        return PAUSED_SLOWER, PAUSED_SLOWEST
    return 0.0, 0.0
