"""
Find what the ledger can't know: a task that is queued and that nobody starts, a run in which nothing moves.

Asked of Airflow about DAGs that the ledger knows; of others nothing is ours. What never started is cleared once it has
been queued for longer than Airflow's own time-out, and reported; a run in which nothing moves is reported alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.hold import is_held
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.recovery_port import RecoveryLedger
from airflow_aiflow.durable.stall import Evidence, Incident, Leave, Requeue, StallKind
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.recovery.airflow_view import AirflowView, made_at
from airflow_aiflow.recovery.below import CONFLICT, clear
from airflow_aiflow.recovery.deeds import Deed, Deeds

#: Task instances of one look, the oldest first, and runs that are looked at closely, which costs questions for each:
#: the rest is for the next look.
MOST_QUEUED, MOST_RUNS = 1000, 50

#: Runs at work that are listed, by the hundred.
MOST_RUNNING = 5000

#: Seconds after which a run in which nothing moves is looked at again.
IDLE_LOOK = 3600.0

#: Airflow's words for a task instance that moves, or will by itself.
MOVING = (
    "scheduled",
    "queued",
    "running",
    "restarting",
    "deferred",
    "up_for_retry",
    "up_for_reschedule",
    "awaiting_input",
)


@dataclass(frozen=True, slots=True)
class Outside:
    """
    Look at what has no attempt.

    :param ledger: knows which DAGs are ours.
    :param api: Airflow's REST API.
    :param policy: the deployment's.
    """

    ledger: RecoveryLedger
    api: AirflowApi
    policy: RecoveryPolicy

    def not_started(self) -> list[tuple[ExecutionId, float]]:
        """
        Find tasks that are queued for too long, in DAGs that are not paused.

        :return: with the seconds for which they are queued.
        """
        view = AirflowView(self.api)
        found: list[tuple[ExecutionId, float]] = []
        for row in islice(self.api.task_instances("~", "~", states=["queued"]), MOST_QUEUED):
            if self._is_young(row):
                break
            age = view.age(row["queued_when"])
            if age > self.policy.queued_after:
                found.append((ExecutionId(row["dag_id"], row["dag_run_id"], row["task_id"], row["map_index"]), age))
        ours = self.ledger.knows_dag({one.dag_id for one, _ in found}) if found else ()
        known = [(one, age) for one, age in found if one.dag_id in ours]
        return [(one, age) for one, age in known if self.policy.paused_dags or not view.is_paused(one.dag_id)]

    def _is_young(self, row: dict[str, Any]) -> bool:
        """Say whether a try was made so late that neither it nor any later one can be queued for too long."""
        now = self.api.told_at
        return now is not None and now - made_at(UUID(row["id"])) < timedelta(seconds=self.policy.queued_after)

    def start(self, queued: Iterable[tuple[ExecutionId, float]]) -> list[Deed]:
        """
        Clear what nobody starts, so that the scheduler queues it again.

        :param queued: what ``not_started`` found just before.
        """
        known, unknown = [], []
        for execution, age in islice(queued, self.policy.rate_per_minute):
            why = f"it has been queued for {age:.0f} s, and nobody runs it"
            wish = Requeue(StallKind.NOT_STARTED, why, report=True)
            stall = self.ledger.execution(execution)
            if stall is None:
                unknown.append((execution, age, wish))
            else:
                known.append((stall, wish))
        deeds = [deed for one, age, wish in unknown if (deed := self._start(one, age, wish)) is not None]
        if known:
            view = AirflowView(self.api)
            seen = view.closely(view.read(stall.execution for stall, _ in known))
            wished = [(Evidence(stall, seen[stall.execution]), wish) for stall, wish in known]
            deeds += Deeds(self.ledger, self.api).carry_out(
                (one, wish) for one, wish in wished if one.seen.state == "queued" and one.seen.person is None
            )
        return deeds

    def _start(self, execution: ExecutionId, age: float, wish: Requeue) -> Deed | None:
        incident = self.ledger.noted(execution, StallKind.NOT_STARTED, wish, age=age)
        if incident is None:
            return None
        try:
            clear(self.api, (execution.dag_id, execution.run_id), [execution])
        except AirflowRefusedError as error:
            if error.status != CONFLICT:  # it has started meanwhile
                raise
            return None
        return Deed(incident, wish)

    def note_idle_runs(self) -> list[Incident]:
        """
        Note runs of ours in which nothing moves and something is unfinished.

        :return: those that were not noted before.
        """
        view = AirflowView(self.api)
        running = islice(self.api.running_runs(), MOST_RUNNING)
        old = [run for run in running if self._may_be_idle(view, run)]
        known = self.ledger.knows_dag({run["dag_id"] for run in old}) if old else ()
        ours = [run for run in old if run["dag_id"] in known]
        incidents = []
        # Drawn by lot, so that those which run for days do not keep the others from ever being looked at.
        for run in random.sample(ours, min(MOST_RUNS, len(ours))):
            if view.is_paused(run["dag_id"]):
                continue
            idle = self._idle_for(view, run["dag_id"], run["dag_run_id"])
            if idle is not None and idle > self.policy.queued_after:
                why = f"nothing in it has moved for {idle:.0f} s, and not all of it is done"
                leave = Leave(why, IDLE_LOOK, report=True, kind=StallKind.IDLE_RUN)
                whole = ExecutionId(run["dag_id"], run["dag_run_id"], "")
                incidents.append(self.ledger.noted(whole, StallKind.IDLE_RUN, leave, age=idle))
        return [incident for incident in incidents if incident is not None]

    def _may_be_idle(self, view: AirflowView, run: dict[str, Any]) -> bool:
        """Say whether a run is old enough, and nobody holds it: then nothing is to move."""
        old = view.age(run["start_date"] or run["queued_at"]) > self.policy.queued_after
        due = run.get("run_after")
        return old and not (due is not None and is_held(datetime.fromisoformat(due)))

    def _idle_for(self, view: AirflowView, dag_id: str, run_id: str) -> float | None:
        """Say for how long nothing has moved in a run; ``None``: something does, or all is done."""
        if _any(self.api.task_instances(dag_id, run_id, states=MOVING)):
            return None
        rows: Sequence[dict[str, Any]] = list(islice(self.api.task_instances(dag_id, run_id), MOST_QUEUED))
        if not any(row["state"] is None for row in rows):
            return None
        ends = [view.age(row["end_date"]) for row in rows if row["end_date"] is not None]
        # Where nothing has run at all, the scheduler has not begun with it: its own limits may be why.
        return min(ends, default=None)


def _any(rows: Iterator[object]) -> bool:
    return next(rows, None) is not None
