"""
Read what Airflow says of task instances, in few requests, and whether a person's hand is on them.

A task instance is read by its run: mapped ones a hundred at a time. What costs further requests (the audit log, whether
the DAG is paused) is read only where something is about to be done. No clock of this machine counts: ages are told by
the clock of the API server, and the beginning of a try by the time that its id holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.identity import UNMAPPED, ExecutionId
from airflow_aiflow.durable.stall import Seen, Stall
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.hooks.airflow_api import PAGE, AirflowApi

#: Kinds of entries of the audit log by which somebody set a state.
HANDS = ("patch_task_instance", "patch_task_group_instances", "patch_dag_run", "bulk_dag_runs")

#: Kinds by which Airflow notes that it started a task instance, and by which it, or the task's supervisor, failed one.
#: Whatever fails one leaves such an entry or one of a hand, but for a change of many task instances at once.
STARTED = "running"
FAILED = ("failed", "heartbeat timeout", "state mismatch", "fail task", "stuck in queued tries exceeded")

#: States that a person gives and that end a task instance or a run.
WORDS = frozenset({"failed", "success", "skipped"})

#: Field of a task instance that says since when it has its state, as far as there is one.
_SINCE = {"queued": "queued_when", "scheduled": "scheduled_when", "running": "start_date", "deferred": "start_date"}


class AirflowView:
    """
    See Airflow as it is now.

    :param api: its REST API.
    """

    def __init__(self, api: AirflowApi) -> None:
        self._api = api
        self._paused: dict[str, bool] = {}

    def read(self, executions: Iterable[ExecutionId]) -> dict[ExecutionId, Seen]:
        """
        Read task instances; ``dag_paused`` and ``person`` are left open.

        :param executions: any.
        :return: of each of them.
        """
        seen: dict[ExecutionId, Seen] = {}
        for (dag_id, run_id, task_id), each in _by_task(executions):
            rows = list(self._rows(dag_id, run_id, task_id, sorted({one.map_index for one in each})))
            # One that is to be scheduled never is where its run has ended.
            open_ends = any(row["state"] is None for row in rows)
            run_state = self._run_state(dag_id, run_id) if open_ends else None
            for row in rows:
                seen[ExecutionId(dag_id, run_id, task_id, row["map_index"])] = self._seen(row, run_state)
            for execution in each:
                seen.setdefault(execution, Seen(None))
        return seen

    def _run_state(self, dag_id: str, run_id: str) -> str | None:
        try:
            return str(self._api.run(dag_id, run_id)["state"])
        except AirflowRefusedError as error:
            if (
                error.status != 404
            ):  # deleted since its task instances were read: one run's end is not all runs' trouble
                raise
            return None

    def closely(self, seen: Mapping[ExecutionId, Seen]) -> dict[ExecutionId, Seen]:
        """
        Add what a deed must know: whether the DAG is paused, and who set a state by hand.

        :param seen: what ``read`` gave.
        """
        found = dict(seen)
        ordered = sorted(seen, key=lambda one: (one.dag_id, one.run_id))
        for (dag_id, run_id), each in groupby(ordered, key=lambda one: (one.dag_id, one.run_id)):
            there = {one: ti_id for one in each if (ti_id := seen[one].ti_id) is not None}
            if not there:
                continue
            failed = any(seen[execution].state == "failed" for execution in there)
            entries = self._entries(dag_id, run_id, min(map(made_at, there.values())), failed=failed)
            hands = [hand for hand in map(_Hand, entries) if hand.sets_state]
            signed = _signed(entries)
            for execution, ti_id in there.items():
                now = seen[execution]
                person = next((hand.who for hand in hands if hand.touches(execution, made_at(ti_id))), None)
                by = signed.get((execution.task_id, execution.map_index, now.try_number), set())
                unsigned = now.state == "failed" and person is None and by == {STARTED}
                found[execution] = replace(now, person=person, dag_paused=self.is_paused(dag_id), unsigned=unsigned)
        return found

    def is_paused(self, dag_id: str) -> bool:
        """
        Say whether a DAG is paused; asked once a pass.

        :param dag_id: the DAG.
        """
        if dag_id not in self._paused:
            self._paused[dag_id] = bool(self._api.dag(dag_id)["is_paused"])
        return self._paused[dag_id]

    def age(self, since: str | None) -> float:
        """
        Tell how long ago something was, in seconds by the API server's clock.

        :param since: in ISO form; ``None``: nothing is known, which counts as now.
        """
        if since is None or self._api.told_at is None:
            return 0.0
        return max(0.0, (self._api.told_at - datetime.fromisoformat(since)).total_seconds())

    def _rows(self, dag_id: str, run_id: str, task_id: str, indexes: Sequence[int]) -> Iterator[dict[str, Any]]:
        try:
            for start in range(0, len(indexes), PAGE):
                part = indexes[start : start + PAGE]
                yield from self._api.task_instances(dag_id, run_id, task_id=task_id, map_indexes=part)
        except AirflowRefusedError as error:
            if error.status != 404:  # the DAG or the run is gone
                raise

    def _seen(self, row: Mapping[str, Any], run_state: str | None) -> Seen:
        state = row["state"]
        since = row.get(_SINCE.get(state, "end_date"))
        return Seen(UUID(row["id"]), state, int(row["try_number"] or 0), self.age(since), run_state)

    def _entries(self, dag_id: str, run_id: str, since: datetime, *, failed: bool) -> list[Mapping[str, Any]]:
        kinds = (*HANDS[:3], *((STARTED, *FAILED) if failed else ()))
        entries: list[Mapping[str, Any]] = list(self._api.event_logs(kinds, after=since, dag_id=dag_id, run_id=run_id))
        # Marks of many runs at once bear no run's id but in what was sent.
        entries += [one for one in self._api.event_logs(HANDS[3:], after=since) if _names_run(one, dag_id, run_id)]
        return entries


class _Hand:
    """An entry of the audit log by which somebody may have set a state."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._entry = entry
        self._sent = _sent(entry)
        self._at = datetime.fromisoformat(entry["when"])

    @property
    def sets_state(self) -> bool:
        """Whether a state was set, and not a note alone."""
        event = self._entry["event"]
        return event == "bulk_dag_runs" or (event in HANDS and self._word in WORDS)

    @property
    def who(self) -> str:
        """Who did what, for people."""
        what = "the run" if "dag_run" in self._entry["event"] else "it"
        who, word = self._entry.get("owner") or "somebody", self._word or "another state"
        return f"{who} set {what} to {word} at {self._at:%H:%M:%S} UTC"

    @property
    def _word(self) -> str | None:
        word = self._sent.get("new_state") or self._sent.get("state")
        return word.lower() if isinstance(word, str) else None

    def touches(self, execution: ExecutionId, since: datetime) -> bool:
        """
        Say whether it was about this task instance, or may have been.

        :param execution: which one.
        :param since: when its present try was made: an earlier word was about an earlier try.
        """
        if self._at < since:
            return False
        if self._entry["event"] != "patch_task_instance" or self._reaches_further():
            return True
        index = self._sent.get("map_index")
        here = index is None or str(index) == str(execution.map_index)
        return self._entry["task_id"] == execution.task_id and here

    def _reaches_further(self) -> bool:
        """Say whether relatives were set as well: which ones they were is not in the log."""
        return any(self._sent.get(word) for word in ("include_upstream", "include_downstream"))


def _signed(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int, int], set[str]]:
    """Give what Airflow itself noted of each try: (task id, map index, try number) -> kinds of entries."""
    found: dict[tuple[str, int, int], set[str]] = {}
    for entry in entries:
        if entry["event"] == STARTED or entry["event"] in FAILED:
            index, number = entry.get("map_index"), entry.get("try_number")
            key = (str(entry["task_id"]), UNMAPPED if index is None else int(index), int(number or 0))
            found.setdefault(key, set()).add(str(entry["event"]))
    return found


def made_at(ti_id: UUID) -> datetime:
    """
    Read when a try was made from its id, a UUIDv7.

    :param ti_id: Airflow's.
    """
    return datetime.fromtimestamp((ti_id.int >> 80) / 1000, UTC)


def one_run(executions: Iterable[ExecutionId]) -> tuple[str, str]:
    """
    Give the DAG and the run of executions of one run.

    :param executions: at least one.
    :raises ValueError: if they are of several runs.
    """
    [(dag_id, run_id)] = {(one.dag_id, one.run_id) for one in executions}
    return dag_id, run_id


def stalls_by_run(stalls: Iterable[Stall]) -> dict[tuple[str, str], list[Stall]]:
    """
    Group stalls by their run, in the given order.

    :param stalls: any.
    """
    found: dict[tuple[str, str], list[Stall]] = {}
    for stall in stalls:
        found.setdefault((stall.execution.dag_id, stall.execution.run_id), []).append(stall)
    return found


def _by_task(executions: Iterable[ExecutionId]) -> Iterator[tuple[tuple[str, str, str], list[ExecutionId]]]:
    def task(one: ExecutionId) -> tuple[str, str, str]:
        return one.dag_id, one.run_id, one.task_id

    for key, each in groupby(sorted(set(executions), key=lambda one: (*task(one), one.map_index)), key=task):
        yield key, list(each)


def _sent(entry: Mapping[str, Any]) -> dict[str, Any]:
    try:
        sent = json.loads(entry.get("extra") or "{}")
    except ValueError:
        return {}
    return sent if isinstance(sent, dict) else {}


def _names_run(entry: Mapping[str, Any], dag_id: str, run_id: str) -> bool:
    """Say whether a change of many runs was about this one."""
    actions = _sent(entry).get("actions")
    for action in actions if isinstance(actions, list) else []:
        for one in action.get("entities", []) if isinstance(action, dict) else []:
            named = one if isinstance(one, dict) else {"dag_run_id": one}
            if named.get("dag_run_id") == run_id and (named.get("dag_id") or entry.get("dag_id")) in (dag_id, "~"):
                return True
    return False


def name(execution: ExecutionId) -> str | list[str | int]:
    """
    Name a task instance as a clear takes it.

    :param execution: which one.
    """
    if execution.map_index == UNMAPPED:
        return execution.task_id
    return [execution.task_id, execution.map_index]
