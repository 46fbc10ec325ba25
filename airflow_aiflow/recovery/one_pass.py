"""
Look once: what stalls, what Airflow says of it, and what is decided.

A look changes nothing but notes: what is left alone, and until when, so that it is not found again at every look. Deeds
are ``deeds.py``'s. Any number of looks may run beside each other and be killed at any moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RENEW_SECONDS, RecoveryPolicy, decide, throttle
from airflow_aiflow.durable.recovery_port import RecoveryLedger, Scan
from airflow_aiflow.durable.stall import (
    Decision,
    Evidence,
    History,
    Leave,
    Quarantine,
    Requeue,
    Seen,
    Settle,
    Stall,
)
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.recovery.airflow_view import AirflowView
from airflow_aiflow.runtime.process import is_dead, this_owner

#: States of a task instance that no attempt comes out of by itself.
ENDED = frozenset({"failed", "success", "skipped", "upstream_failed", "removed"})

#: What a fence is named by: (execution row, fence).
Fence = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Look:
    """
    Hold what one look found.

    :param decided: each stall with what becomes of it now.
    :param dead: the fences whose processes were found dead on this machine.
    :param owners: of the live leases on this machine.
    """

    decided: Sequence[tuple[Evidence, Decision]] = ()
    dead: Collection[Fence] = field(default_factory=frozenset)
    owners: Sequence[Owner] = ()

    @property
    def deeds(self) -> list[tuple[Evidence, Requeue | Quarantine]]:
        """What has to be done in Airflow."""
        return [
            (one, what) for one, what in self.decided if isinstance(what, Requeue | Quarantine) and _stirs(one, what)
        ]

    @property
    def notes(self) -> list[tuple[Evidence, Leave | Settle | Quarantine]]:
        """What is only noted in the ledger."""
        return [(one, what) for one, what in self.decided if not isinstance(what, Requeue) and not _stirs(one, what)]

    @property
    def reports(self) -> bool:
        """Whether somebody should hear of what is only noted."""
        return any(isinstance(what, Quarantine) or (isinstance(what, Leave) and what.report) for _, what in self.notes)


def scan_of(policy: RecoveryPolicy) -> Scan:
    """
    Say what a look under this policy looks for.

    :param policy: the deployment's.
    """
    return Scan(
        stall_floor=policy.stall_floor,
        unheard_after=policy.unheard_after,
        lost_after=policy.lost_after,
        settled=RENEW_SECONDS,
    )


def look(ledger: RecoveryLedger, api: AirflowApi, policy: RecoveryPolicy) -> Look:
    """
    Look once and decide; notes nothing.

    :param ledger: knows what stalls.
    :param api: Airflow's REST API; asked only where something stalls.
    :param policy: the deployment's.
    :raises LedgerUnavailableError: if the ledger can't be asked.
    :raises AirflowUnavailableError: if Airflow can't be asked.
    """
    here = this_owner("")
    at_work = ledger.at_work(boot_id=here.boot_id, pid_namespace=here.pid_namespace)
    owners = [owner for _, _, owner in at_work]
    dead = frozenset((pk, fence) for pk, fence, owner in at_work if is_dead(owner))
    stalls = ledger.stalled(scan_of(policy), dead=dead)
    if not stalls:
        return Look(dead=dead, owners=owners)
    view = AirflowView(api)
    seen = view.read(stall.execution for stall in stalls)
    histories = ledger.histories(stalls)
    decided = decide_all(stalls, seen, histories, policy, dead=dead)
    acted_on = {one.stall.execution for one, what in decided if not isinstance(what, Settle) and _matters(what)}
    if acted_on:
        # Only who is about to act asks for what costs more: the first look was without.
        close = view.closely({execution: seen[execution] for execution in acted_on})
        decided = decide_all(stalls, seen | close, histories, policy, dead=dead)
    return Look(_throttled(ledger, decided, policy), dead, owners)


def note(ledger: RecoveryLedger, notes: Iterable[tuple[Evidence, Leave | Settle | Quarantine]]) -> None:
    """
    Note what is left alone and for how long; what Airflow has heard of; and what no attempt will come for.

    :param ledger: takes the notes.
    :param notes: of one look.
    """
    for evidence, what in notes:
        if isinstance(what, Settle):
            ledger.heard(evidence.stall)
        ledger.found(evidence.stall, what)
        if isinstance(what, Quarantine) or (isinstance(what, Leave) and what.final):
            ledger.abandon(evidence.stall)


def decide_all(
    stalls: Iterable[Stall],
    seen: Mapping[ExecutionId, Seen],
    histories: Mapping[int, History],
    policy: RecoveryPolicy,
    *,
    dead: Collection[Fence],
) -> list[tuple[Evidence, Decision]]:
    """
    Decide on each stall by itself, in the given order.

    :param stalls: as the ledger has them.
    :param seen: what Airflow says.
    :param histories: by execution row.
    :param policy: the deployment's.
    :param dead: the fences whose processes were found dead.
    """
    decided: list[tuple[Evidence, Decision]] = []
    for stall in stalls:
        gone = True if (stall.execution_pk, stall.fence) in dead else is_dead(stall.owner)
        history = histories.get(stall.execution_pk, History())
        evidence = Evidence(stall, seen.get(stall.execution, Seen(None)), history, gone)
        decided.append((evidence, decide(evidence, policy)))
    return decided


def _stirs(evidence: Evidence, what: Decision) -> bool:
    """Say whether something has to be done in Airflow: what is given up and has failed there is so already."""
    return isinstance(what, Requeue) or (isinstance(what, Quarantine) and evidence.seen.state not in ENDED)


def _matters(what: Decision) -> bool:
    """Say whether a decision has consequences beyond a note."""
    return not isinstance(what, Leave) or what.report or what.final


def _throttled(
    ledger: RecoveryLedger, decided: Sequence[tuple[Evidence, Decision]], policy: RecoveryPolicy
) -> list[tuple[Evidence, Decision]]:
    wishes = [(evidence, what) for evidence, what in decided if isinstance(what, Requeue)]
    if not wishes:
        return list(decided)
    granted = iter(throttle(wishes, ledger.pulse(), policy))
    return [next(granted) if isinstance(what, Requeue) else (evidence, what) for evidence, what in decided]
