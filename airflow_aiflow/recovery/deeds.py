"""
Do what was decided: requeue, or give up, by Airflow's REST API.

Each fence is marked in the ledger before Airflow is asked; whoever marks it first acts on it, alone. What is about to
be touched is read again just before, and must be what the decision was made on. Whoever is killed in between leaves a
mark that soon counts as nobody's, and the next pass goes on from what Airflow then says.

Airflow has no clear of a task instance that it holds for running but one that waits for a dead worker: so its state is
set first. For the moment between the two requests the scheduler sees a failed task and may fail what comes below it:
that is cleared as well, else the run stays failed. All of one run goes in one clear, for each raises the run's clear
number.

Not covered: in that moment the scheduler may end the run as failed, which tells callbacks of the DAG and goes on again
with the clear.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.recovery_port import RecoveryLedger
from airflow_aiflow.durable.stall import Decision, Evidence, Incident, Leave, Quarantine, Requeue, Seen, Stall
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.recovery.airflow_view import AirflowView
from airflow_aiflow.recovery.below import CONFLICT, clear, failed_below, take_back
from airflow_aiflow.recovery.one_pass import ENDED, Fence

log = logging.getLogger(__name__)

#: States in which Airflow waits for a worker, so that a clear alone would wait for it too.
HELD = frozenset({"running", "restarting"})

#: A set of states stops at the first that it can't do; each further request gets past one such.
MOST_SETS = 3

#: Seconds after which a refused request is tried again: somebody has to change something first.
AFTER_REFUSAL = 60.0

#: Seconds after which one that met a running task is looked at again.
AFTER_CONFLICT = 5.0


@dataclass(frozen=True, slots=True)
class Deed:
    """
    Tell of one deed.

    :param incident: as the ledger keeps it now.
    :param done: what was done: where Airflow refused, it is left for a while.
    """

    incident: Incident
    done: Decision


class Deeds:
    """
    Act on Airflow and in the ledger.

    :param ledger: marks what is acted on.
    :param api: Airflow's REST API.
    :param dead: fences whose processes were found dead, so that their live lease does not count.
    """

    def __init__(self, ledger: RecoveryLedger, api: AirflowApi, *, dead: Collection[Fence] = ()) -> None:
        self._ledger = ledger
        self._api = api
        self._dead = dead

    def carry_out(self, decided: Iterable[tuple[Evidence, Requeue | Quarantine]]) -> list[Deed]:
        """
        Carry out what was decided, a run after the other.

        :param decided: of one look.
        :return: what was done; what had changed meanwhile is not in it, and is for the next look.
        :raises AirflowUnavailableError: if Airflow does not answer; what was not done is found again.
        """
        return list(self.each(decided))

    def each(self, decided: Iterable[tuple[Evidence, Requeue | Quarantine]]) -> Iterator[Deed]:
        """
        Do the same, and tell of each deed when it is done: a trouble on the way does not take back what was.

        :param decided: of one look.
        :raises AirflowUnavailableError: if Airflow does not answer; what was not done is found again.
        """
        runs: dict[tuple[str, str], list[tuple[Evidence, Requeue | Quarantine]]] = {}
        for evidence, what in decided:
            execution = evidence.stall.execution
            runs.setdefault((execution.dag_id, execution.run_id), []).append((evidence, what))
        for run, wished in runs.items():
            unchanged = self._unchanged(wished)
            requeues = {one.stall: what for one, what in unchanged if isinstance(what, Requeue)}
            if requeues:
                yield from self._requeue(run, requeues)
            given_up = [(one, what) for one, what in unchanged if isinstance(what, Quarantine)]
            if given_up:
                yield from self._give_up(run, given_up)

    def _unchanged(
        self, wished: Sequence[tuple[Evidence, Requeue | Quarantine]]
    ) -> list[tuple[Evidence, Requeue | Quarantine]]:
        """Keep what Airflow still says the same of as when it was decided."""
        view = AirflowView(self._api)
        now = view.closely(view.read(evidence.stall.execution for evidence, _ in wished))
        return [(one, what) for one, what in wished if _same(one.seen, now[one.stall.execution])]

    def _requeue(self, run: tuple[str, str], wishes: dict[Stall, Requeue]) -> list[Deed]:
        # The clear itself; one for what the scheduler fails meanwhile; and setting a state clears what failed below it.
        clears = 3 if any(wish.force for wish in wishes.values()) else 2
        by_fence = {(stall.execution_pk, stall.fence): wish for stall, wish in wishes.items()}
        marked = self._ledger.mark(list(wishes), dead=self._dead, clears=clears)
        mine = {stall: by_fence[(stall.execution_pk, stall.fence)] for stall in marked}
        if not mine:
            return []
        failpoint("after_mark", run[0])
        begun = {stall.execution_pk for stall in wishes if stall.marked}  # by a pass that was broken off
        deeds = [
            Deed(self._ledger.found(replace(stall, marked=stall.execution_pk in begun), wish), wish)
            for stall, wish in mine.items()
        ]
        try:
            tasks = {stall.execution.task_id for stall in mine}
            below = failed_below(self._api, run, tasks)
            stuck = self._release(run, [stall for stall, wish in mine.items() if wish.force])
            failpoint("after_set_state", run[0])
            going = [stall for stall in mine if stall not in stuck]
            if going:
                # As soon after the states were set as can be.
                clear(self._api, run, [*(stall.execution for stall in going), *below])
        except AirflowRefusedError as error:
            return self._refused(mine, error)
        if going:
            failpoint("after_clear", run[0])
            # In this order: whoever is killed between a clear and the note is made up for by a later pass.
            if take_back(self._api, run, {stall.execution.task_id for stall in going}, below):
                self._ledger.cleared(going)
        held = {stall: mine[stall] for stall in stuck}
        done = [one for one in deeds if one.incident.execution not in {stall.execution for stall in held}]
        return done + self._refused(held, AirflowRefusedError("PATCH", str(run), CONFLICT, "the state was not set"))

    def _release(self, run: tuple[str, str], held: Sequence[Stall]) -> list[Stall]:
        """
        Set the state of what Airflow holds for running.

        :return: what it still holds.
        """
        left = list(held)
        for _ in range(MOST_SETS):
            instances = [(stall.execution.task_id, stall.execution.map_index) for stall in left]
            troubles = self._api.set_state(*run, instances, "failed") if left else []
            if not troubles:
                return []
            for trouble in troubles:
                log.info("aiflow: Airflow on setting states in run %s of %s: %s", run[1], run[0], trouble.get("error"))
            now = AirflowView(self._api).read(stall.execution for stall in left)
            left = [stall for stall in left if now[stall.execution].state in HELD]
        return left

    def _refused(self, marked: dict[Stall, Requeue], error: AirflowRefusedError) -> list[Deed]:
        """Take marks back and leave their executions for a while."""
        if not marked:
            return []
        self._ledger.void(list(marked))
        deeds = []
        for stall, wish in marked.items():
            if error.status == CONFLICT:
                leave = Leave(f"{wish.why}; Airflow was at it at the same moment", AFTER_CONFLICT, kind=wish.kind)
            else:
                leave = Leave(f"{wish.why}; {error}", AFTER_REFUSAL, report=True, kind=wish.kind)
            deeds.append(Deed(self._ledger.found(stall, leave), leave))
        return deeds

    def _give_up(self, run: tuple[str, str], given_up: Sequence[tuple[Evidence, Quarantine]]) -> list[Deed]:
        going_on = [one.stall for one, _ in given_up if one.seen.state not in ENDED]
        # As before a requeue: one that has renewed its lease meanwhile, or that another pass is at, is not failed.
        marked = self._ledger.mark(going_on, dead=self._dead)
        mine = {(stall.execution_pk, stall.fence) for stall in marked}
        if marked:
            failpoint("after_mark", run[0])
            try:
                instances = [(one.execution.task_id, one.execution.map_index) for one in marked]
                self._api.set_state(*run, instances, "failed")
            except AirflowRefusedError as error:
                # The incident says that it is given up, and Airflow goes by its own rules.
                log.warning("aiflow: %s", error)
            self._ledger.void(marked)  # no clear of ours follows: the next one is a person's
        deeds = []
        for evidence, what in given_up:
            stall = evidence.stall
            if evidence.seen.state in ENDED or (stall.execution_pk, stall.fence) in mine:
                deeds.append(Deed(self._ledger.found(stall, what), what))
                self._ledger.abandon(stall)
        return deeds


def _same(was: Seen, now: Seen) -> bool:
    """Say whether Airflow says the same as before; ages grow."""
    then = (was.ti_id, was.state, was.try_number, was.person, was.unsigned, was.dag_paused)
    return then == (now.ti_id, now.state, now.try_number, now.person, now.unsigned, now.dag_paused)
