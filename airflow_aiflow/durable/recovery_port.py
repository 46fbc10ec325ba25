"""How recovery reads the ledger and acts on it. Every write is a compare-and-set on (execution, fence)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.stall import Decision, History, Incident, Pulse, Stall, StallKind


@dataclass(frozen=True, slots=True)
class Scan:
    """
    Say what a pass looks for; every duration in seconds.

    :param stall_floor: silence of a live attempt from which on it is a candidate.
    :param unheard_after: age of a success that Airflow has not been seen to hear of.
    :param lost_after: age of a pause; the oldest look comes first, a long wait for a person is looked at seldom.
    :param settled: a server that started so recently is not believed about lapsed leases: nobody could renew one.
    :param limit: at most so many, those that stalled first.
    """

    stall_floor: float = 600.0
    unheard_after: float = 60.0
    lost_after: float = 60.0
    settled: float = 30.0
    limit: int = 1000


class RecoveryLedger(Protocol):
    """Know what stalls, and what was done about it."""

    def at_work(self, *, boot_id: str, pid_namespace: int) -> Sequence[tuple[int, int, Owner]]:
        """
        List the owners of live leases in one pid namespace of one machine: their death can be verified there.

        :return: (execution row, fence, owner).
        """

    def stalled(self, scan: Scan, *, dead: Collection[tuple[int, int]] = ()) -> Sequence[Stall]:
        """
        Find what looks stalled and is not to be left alone for now.

        :param scan: what to look for.
        :param dead: (execution row, fence) whose process was found dead: reported although their lease is live.
        """

    def histories(self, stalls: Iterable[Stall]) -> Mapping[int, History]:
        """
        Give the histories of these executions' tasks and of the steps in hand, from recent executions.

        :return: by execution row.
        """

    def pulse(self) -> Pulse:
        """Tell how recovery went of late."""

    def found(self, stall: Stall, decision: Decision) -> Incident:
        """
        Note what was found about one fence and what is decided, and when to look again.

        :return: the incident: one row a fence, however often it is found.
        """

    def noted(self, execution: ExecutionId, kind: StallKind, decision: Decision, *, age: float) -> Incident | None:
        """
        Note what has no execution in the ledger: a task that never started, or a run in which nothing moves.

        :param execution: of a run as a whole the task id is empty.
        :param age: seconds since it began.
        :return: the incident, one for each (execution, kind); ``None``: it is to be left alone for now.
        """

    def mark(
        self, stalls: Sequence[Stall], *, dead: Collection[tuple[int, int]] = (), clears: int = 1
    ) -> Sequence[Stall]:
        """
        Mark executions of one run for a requeue, in one statement: whoever marks a fence first acts on it, alone.

        A mark that was begun by somebody who then died counts as nobody's after some seconds.

        :param dead: those whose lease may be live, since their process was found dead.
        :param clears: by how much the deed may raise the run's clear number, at most: setting a state clears what
            failed below it, and what the scheduler failed meanwhile takes a second clear. The range of every open mark
            of the run grows by it.
        :return: those that are the caller's to requeue: the fence is as it was, no lease is live, no other mark stands.
        """

    def cleared(self, stalls: Sequence[Stall]) -> None:
        """Note that Airflow has taken the clear of marked executions, and of all that had failed below them."""

    def broken_off(self) -> Sequence[tuple[int, int, ExecutionId]]:
        """
        List requeues whose attempt has begun and of which nobody said that all was cleared: who did it died on the way.

        :return: (execution row, fence, execution), the oldest first.
        """

    def made_up(self, broken: Sequence[tuple[int, int]]) -> None:
        """
        Note that nothing of these requeues is left to be done.

        :param broken: (execution row, fence).
        """

    def void(self, stalls: Sequence[Stall]) -> None:
        """Take marks back: Airflow was not asked, or refused."""

    def heard(self, stall: Stall) -> bool:
        """Note that Airflow has heard of a success; ``False``: another attempt took over."""

    def abandon(self, stall: Stall) -> int:
        """
        Put the open effects of an execution in doubt that no attempt will visit.

        :return: how many; only those whose calls surely ended.
        """

    def unalerted(self, limit: int = 100) -> Sequence[Incident]:
        """List incidents that somebody should hear of and nobody was told, the oldest first."""

    def alerted(self, numbers: Iterable[int]) -> None:
        """Note that these incidents were told."""

    def reap_reuse(self, age: float) -> int:
        """
        Forget where results lie that no run may ask for any more; a part of them at each call, over time all.

        :param age: seconds; what is older goes. Results themselves stay.
        :return: how many.
        """

    def knows_dag(self, dag_ids: Collection[str]) -> Collection[str]:
        """Say which of these DAGs have executions: others are none of our business."""

    def execution(self, identity: ExecutionId) -> Stall | None:
        """Give one execution as it stands, stalled or not; ``None``: it never ran."""
