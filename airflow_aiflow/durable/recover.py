"""
Decide what becomes of an execution that looks stalled: pure functions over evidence.

The first rule that has something to say decides. In doubt nothing is done: a wrong requeue costs an attempt, a wrong
"leave" costs a look some seconds later. Effects are never decided here.

Not covered: with ``fail_fast`` of a DAG, Airflow fails the running tasks beside one that failed; such a task looks like
one that its infrastructure lost, and is requeued. So does a task whose own error could not reach the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from airflow_aiflow.durable.attempt import Recovery
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.stall import (
    Decision,
    Evidence,
    History,
    Leave,
    Pulse,
    Quarantine,
    Requeue,
    Settle,
    StallKind,
)

#: Airflow's words for a task instance that will run, or go on, by itself.
COMING = frozenset({None, "scheduled", "queued", "deferred", "up_for_reschedule", "awaiting_input"})

#: Airflow's words for a run of which nothing is scheduled.
ENDED_RUN = ("failed", "success")

#: Airflow's words for one that will not run, because of its run and not of itself.
OUT = frozenset({"removed", "skipped", "upstream_failed"})

#: Below it a task costs less to run again than to think about: one minute.
SHORT_SECONDS = 60.0

#: Above it a second death hurts: five minutes.
LONG_SECONDS = 300.0

#: Looks at what nobody can hurry, in seconds.
SLOW_LOOK = 300.0

#: Airflow's words for a task instance that a worker is at, as far as Airflow knows: a clear alone would wait for it.
HELD = ("running", "restarting")

#: Kinds that are not about a death: no number of them makes a task unfit to run.
HARMLESS = (StallKind.UNHEARD, StallKind.LOST_RETURN, StallKind.NOT_STARTED)

#: Seconds that whoever is at work gets to renew its lease once the ledger's server has started, or another one has
#: taken over: the default of ``lease_ttl``, in which a heartbeat comes three times.
RENEW_SECONDS = 30.0

#: Doublings of the back-off, at most: a year.
MOST_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """
    Hold the deployment's word on recovery; every duration in seconds.

    :param stall_floor: silence of a live attempt below which nothing counts as hung.
    :param hung_factor: how often the 95th percentile of its step a silence must be.
    :param max_recoveries: requeues of an execution.
    :param backoff: between the first requeue, which comes at once, and the second; then doubling.
    :param quarantine_after: deaths in the same step.
    :param rate_per_minute: requeues of all executions together.
    :param breaker_share: share of requeued attempts that died again above which the platform counts as down.
    :param breaker_least: requeued attempts that it takes to say so.
    :param alive_grace: time that a process found alive gets to renew its lapsed lease: the ledger may have been away.
    :param settle_after: age below which a process found dead is left to its supervisor, which tells Airflow itself.
    :param unheard_after: time that Airflow gets to hear of a success.
    :param lost_after: time that Airflow gets to bring a paused execution back.
    :param queued_after: time that a queued task gets to start.
    :param paused_dags: whether tasks of paused DAGs are requeued.
    :param reuse_kept: age from which on a result is not found by other runs any more.
    """

    stall_floor: float = 600.0
    hung_factor: float = 3.0
    max_recoveries: int = 5
    backoff: float = 30.0
    quarantine_after: int = 3
    rate_per_minute: int = 300
    breaker_share: float = 0.5
    breaker_least: int = 10
    alive_grace: float = 60.0
    settle_after: float = 2.0
    unheard_after: float = 60.0
    lost_after: float = 60.0
    queued_after: float = 600.0
    paused_dags: bool = False
    reuse_kept: float = 30 * 86_400.0


def tier(word: Recovery, history: History) -> Recovery:
    """
    Say how a task is recovered.

    :param word: the author's; ``auto`` asks its history.
    :param history: of the task; without one it counts as of middle length.
    """
    if word != "auto":
        return word
    if history.task_p50 is None:
        return "resume"
    if history.task_p50 < SHORT_SECONDS:
        return "rerun"
    return "resume" if history.task_p50 <= LONG_SECONDS else "careful"


def decide(evidence: Evidence, policy: RecoveryPolicy) -> Decision:
    """
    Decide.

    :param evidence: of one execution, read just before.
    :param policy: the deployment's.
    """
    for rule in RULES:
        found = rule(evidence, policy)
        if found is not None:
            return found
    return Leave("nothing is wrong with it")


def hung_after(evidence: Evidence, policy: RecoveryPolicy) -> float:
    """
    Say how long an attempt may be silent, in seconds.

    :param evidence: with the history of the step in hand; where none is, of the whole task.
    :param policy: with floor and factor.
    """
    return max(policy.stall_floor, policy.hung_factor * (_usual(evidence) or 0.0), evidence.stall.step_timeout or 0.0)


def _usual(evidence: Evidence) -> float | None:
    """Say how long what is in hand takes by its history; ``None``: it has none."""
    return evidence.history.task_p50 if evidence.stall.step is None else evidence.history.step_p95


def _gone(evidence: Evidence, policy: RecoveryPolicy) -> Decision | None:
    if evidence.seen.ti_id is None:
        return Leave("Airflow knows this task instance no more", SLOW_LOOK, final=True)
    if evidence.seen.state in OUT and not _settled(evidence):
        return Leave(f"Airflow says {evidence.seen.state}: no attempt will come", SLOW_LOOK, final=True)
    return None


def _settled(evidence: Evidence) -> bool:
    """Say whether the ledger's success is Airflow's as well; a skip is one for the ledger."""
    return evidence.stall.state is ExecutionState.SUCCEEDED and evidence.seen.state in ("success", "skipped")


def _person(evidence: Evidence, policy: RecoveryPolicy) -> Decision | None:
    seen = evidence.seen
    if seen.unsigned and evidence.stall.marks == 0 and not _settled(evidence):
        # Our own deeds set states in the same way, after a mark.
        why = "somebody set it to failed among others, of which Airflow keeps no entry"
        return Leave(f"{why}: a person's word stands", SLOW_LOOK, final=True)
    if seen.person is None or _settled(evidence):
        return None
    return Leave(f"{seen.person}: a person's word stands", SLOW_LOOK, final=seen.state in ("failed", "success"))


def _finished(evidence: Evidence, policy: RecoveryPolicy) -> Decision | None:
    stall, seen = evidence.stall, evidence.seen
    if not stall.state.finished:
        return None
    if stall.state is not ExecutionState.SUCCEEDED:
        return Leave("the task's own code failed: that is for its retries and for people", SLOW_LOOK)
    if _settled(evidence):
        return Settle(f"Airflow says {seen.state}")
    if seen.state in COMING:
        return _coming(evidence, policy)
    if seen.state == "running" and _later(evidence):
        return Leave("a later attempt is starting")
    if seen.state == "running" and stall.since < policy.unheard_after:
        return Leave("Airflow is about to hear of it", policy.unheard_after - stall.since)
    if seen.state in HELD and not evidence.verified_dead:
        # A plain task may work on for hours after its flow has ended; where it is dead, Airflow finds out by itself.
        return Leave("its process may still be at work, after its flow")
    if stall.unheard > 0:
        why = f"it succeeded again, and Airflow says {seen.state}: what comes after its flow fails, see its log"
        return Leave(why, SLOW_LOOK, report=True, final=seen.state == "failed", kind=StallKind.UNHEARD)
    return _requeue(
        evidence, policy, StallKind.UNHEARD, f"it succeeded, and Airflow says {seen.state}: it replays what it gave"
    )


def _paused(evidence: Evidence, policy: RecoveryPolicy) -> Decision | None:
    stall, seen = evidence.stall, evidence.seen
    if stall.state is not ExecutionState.PAUSED:
        return None
    if seen.state == "success":
        return Leave("Airflow says success, by a person's word", SLOW_LOOK, final=True)
    if seen.state in COMING:
        return _coming(evidence, policy)
    if seen.state not in ("failed", "up_for_retry"):
        # Also where its process is gone: a visit's ends with it, and Airflow says running once the next one begins.
        return Leave(f"it is paused, and Airflow says {seen.state}")
    if stall.since < policy.lost_after:
        return Leave("it has paused just now", policy.lost_after - stall.since)
    if stall.pause_reason is None and seen.state == "failed":
        # A deferral of the operator's own: its trigger may have failed, or its time have run out.
        why = "it has deferred itself, and Airflow failed it: its trigger may have"
        return Leave(why, SLOW_LOOK, report=True, final=True, kind=StallKind.LOST_RETURN)
    if stall.pause_reason is None:
        return Leave("it has deferred itself, and Airflow waits to retry")
    return _requeue(evidence, policy, StallKind.LOST_RETURN, f"it has paused, and Airflow says {seen.state}")


def _ends_elsewhere(evidence: Evidence, policy: RecoveryPolicy) -> Decision | None:
    seen = evidence.seen
    if seen.state == "success":
        return Leave("Airflow says success, by another attempt's word or a person's", SLOW_LOOK, final=True)
    if seen.state in COMING:
        return _coming(evidence, policy)
    if seen.state == "running" and _later(evidence):
        return Leave("a later attempt is starting")
    return None


def _alive(evidence: Evidence, policy: RecoveryPolicy) -> Decision | None:
    stall = evidence.stall
    if not stall.leased or evidence.verified_dead:
        return None
    allowed = hung_after(evidence, policy)
    if stall.idle is None or stall.idle <= allowed:
        return Leave("it is at work", check_in=max(1.0, allowed - (stall.idle or 0.0)))
    if evidence.seen.state != "running":
        return Leave(f"its lease is live, and Airflow says {evidence.seen.state}: its process is being ended")
    hand = "its body" if stall.step is None else f"step '{stall.step}'"
    why = f"no step was recorded for {stall.idle:.0f} s, more than {allowed:.0f} s, in {hand}"
    if stall.deaths_here > 1 and _usual(evidence) is None and stall.step_timeout is None:
        why = f"{why}; it ended here before without an outcome and may just take long: give it a timeout"
        return Leave(why, SLOW_LOOK, report=True, kind=StallKind.HUNG)
    return _requeue(evidence, policy, StallKind.HUNG, why, report=True)


def _dead(evidence: Evidence, policy: RecoveryPolicy) -> Decision | None:
    stall, state = evidence.stall, evidence.seen.state
    if stall.leased and (stall.first_seen or 0.0) < policy.settle_after:
        return Leave("its process has just died: its supervisor may tell Airflow", policy.settle_after)
    if state not in DEAD:
        return Leave(f"Airflow says {state}")
    kind, then = DEAD[state]
    if stall.cut_off and state in HELD and not evidence.verified_dead:
        left = RENEW_SECONDS - (stall.first_seen or 0.0)
        if left > 0:
            return Leave("another server has taken over the ledger: it may renew its lease there", left)
    how = "its process is gone" if evidence.verified_dead else "its lease has lapsed"
    if evidence.verified_dead is False:
        if stall.lease_left is not None and (wait := policy.alive_grace + stall.lease_left) > 0:
            return Leave("its process lives on and may renew its lease", min(wait, policy.alive_grace))
        kind, how = StallKind.SPLIT_BRAIN, "its process lives on without its lease"
    return _requeue(evidence, policy, kind, f"{how}, {then}")


#: What a death without an outcome is, by Airflow's word.
DEAD: Mapping[str | None, tuple[StallKind, str]] = {
    "running": (StallKind.DEAD_WORKER, "and Airflow says running"),
    "restarting": (StallKind.RESTARTING, "and Airflow waits for its worker"),
    "up_for_retry": (StallKind.DEAD_PROCESS, "without an outcome: no retry is burnt for it"),
    "failed": (StallKind.EXHAUSTED, "without an outcome, and Airflow gave it up"),
}


#: What it is to wait in a run that has ended.
OF_ENDED_RUN: Mapping[ExecutionState, StallKind] = {
    ExecutionState.SUCCEEDED: StallKind.UNHEARD,
    ExecutionState.PAUSED: StallKind.LOST_RETURN,
}


#: In this order.
RULES: tuple[Callable[[Evidence, RecoveryPolicy], Decision | None], ...] = (
    _gone,
    _person,
    _finished,
    _paused,
    _ends_elsewhere,
    _alive,
    _dead,
)


def _later(evidence: Evidence) -> bool:
    """Say whether Airflow has a later attempt than the ledger: a new id, or in one race the number alone."""
    seen, known = evidence.seen, evidence.stall.counters
    return seen.ti_id != known.ti_id or seen.try_number > known.try_number


def _coming(evidence: Evidence, policy: RecoveryPolicy) -> Decision:
    """Leave what Airflow is bringing, unless nobody takes it."""
    seen, at_work = evidence.seen, evidence.stall.leased and not evidence.verified_dead
    if seen.state == "queued" and seen.age > policy.queued_after and not at_work:
        why = f"it has been queued for {seen.age:.0f} s, and nobody runs it"
        return _requeue(evidence, policy, StallKind.NOT_STARTED, why, report=True)
    if seen.state is None and seen.run_state in ENDED_RUN:
        # As of a clear that met the scheduler at ending the run.
        kind = OF_ENDED_RUN.get(evidence.stall.state, StallKind.EXHAUSTED)
        return _requeue(evidence, policy, kind, f"it is to run again, and its run counts as {seen.run_state}")
    return Leave("Airflow is bringing an attempt")


def _requeue(
    evidence: Evidence,
    policy: RecoveryPolicy,
    kind: StallKind,
    why: str,
    *,
    report: bool = False,
) -> Decision:
    """Requeue, where nothing forbids it."""
    stall, seen = evidence.stall, evidence.seen
    how = tier(stall.recovery, evidence.history)
    if how == "off":
        return Leave(f'{why}; the task says recovery="off"', SLOW_LOOK, report=True, kind=kind)
    if seen.dag_paused and not policy.paused_dags:
        return Leave(f"{why}; its DAG is paused", SLOW_LOOK, report=True, kind=kind)
    if stall.deaths_here >= policy.quarantine_after and kind not in HARMLESS:
        return Quarantine(kind, f"{why}; {stall.deaths_here} attempts died {stall.place or 'at the same place'}")
    most = policy.max_recoveries if stall.max_recoveries is None else stall.max_recoveries
    if stall.recoveries >= most:
        why = f"{why}; it was recovered {stall.recoveries} times, which is all that is allowed"
        if kind in HARMLESS or seen.state == "up_for_retry" or most == 0:
            # A success is not failed for it, nor are the tries taken away that Airflow has left.
            return Leave(why, SLOW_LOOK, report=True, final=seen.state == "failed", kind=kind)
        return Quarantine(kind, why)
    wait = _wait(evidence, policy, how)
    if wait > 0:
        return Leave(f"{why}; the next recovery is due in {wait:.0f} s", wait, kind=kind)
    return Requeue(kind, why, force=seen.state in HELD, report=report or how == "careful")


def _wait(evidence: Evidence, policy: RecoveryPolicy, how: Recovery) -> float:
    stall = evidence.stall
    wait = 0.0
    if how != "rerun" and stall.recoveries > 0 and stall.requeued_ago is not None:
        wait = policy.backoff * 2.0 ** min(stall.recoveries - 1, MOST_DOUBLINGS) - stall.requeued_ago
    if how == "careful" and stall.open_work.count > 0:
        # Else the next attempt would hold a slot until what the target says of an open call is final.
        wait = max(wait, stall.open_work.gone_in)
    return wait


def is_down(pulse: Pulse, policy: RecoveryPolicy) -> bool:
    """
    Say whether the platform counts as down: what was requeued dies again. One node's death kills each run once.

    :param pulse: of late.
    :param policy: with share and least count.
    """
    return pulse.requeued >= policy.breaker_least and pulse.died_again > policy.breaker_share * pulse.requeued


def throttle(
    decisions: Iterable[tuple[Evidence, Requeue]], pulse: Pulse, policy: RecoveryPolicy
) -> list[tuple[Evidence, Requeue | Leave]]:
    """
    Let through what the rate limit and the breaker allow, in the given order.

    :param decisions: the requeues of one pass, the most urgent first.
    :param pulse: of late.
    :param policy: the deployment's.
    :return: each with what becomes of it now.
    """
    left = max(0, policy.rate_per_minute - pulse.last_minute)
    down = is_down(pulse, policy)
    if down:
        probe_due = pulse.probe_ago is None or pulse.probe_ago >= 60.0
        left = min(left, 1 if probe_due else 0)
    found: list[tuple[Evidence, Requeue | Leave]] = []
    for evidence, wish in decisions:
        if left > 0:
            left -= 1
            found.append((evidence, wish))
        elif down:
            why = f"{pulse.died_again} of {pulse.requeued} requeued attempts died again: the platform seems down"
            # One alert for all: they stalled for one reason.
            first = not any(isinstance(what, Leave) for _, what in found)
            found.append((evidence, Leave(f"{wish.why}; {why}", 60.0, report=first, kind=wish.kind)))
        else:
            why = f"{policy.rate_per_minute} requeues a minute are allowed"
            found.append((evidence, Leave(f"{wish.why}; {why}", 10.0, kind=wish.kind)))
    return found
