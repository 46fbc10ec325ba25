"""
Take an execution over: read the sign, wait for a live owner to let go, raise the fence.

The sign is decided on the fence on which it was computed; where that moved meanwhile, everything is looked at again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from airflow_aiflow.durable.attempt import Attempt, Owner
from airflow_aiflow.durable.execution import ExecutionState, Standing, Taken
from airflow_aiflow.durable.ports import Clock, Ledger
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.durable.sign import Evidence, Sign, is_requeue, is_top, read_sign, start
from airflow_aiflow.exceptions import AttemptSuperseded, LedgerError, LedgerUnavailableError
from airflow_aiflow.runtime import process
from airflow_aiflow.runtime.patience import Patience

#: How long a killed process gets to vanish; SIGKILL needs no cooperation, only the scheduler's next tick.
KILL_SECONDS = 10.0

#: Seconds between two looks at the lease that is waited for.
LOOK_SECONDS = 0.25

#: Take-overs that may fail in a row because the fence moved; more means that two attempts push each other out for ever.
MOST_ROUNDS = 50


def take_over(
    attempt: Attempt,
    ledger: Ledger,
    settings: FlowSettings,
    clock: Clock,
    *,
    ttl: float,
    check: Callable[[], None] = lambda: None,
) -> Taken:
    """
    Take an execution over for an attempt.

    :param attempt: the newcomer.
    :param ttl: seconds of the lease.
    :param check: raises where the newcomer is to end itself.
    :return: the lease with its fence, and what stood before.
    :raises AttemptSuperseded: if a later attempt has been at work already.
    """
    patience = Patience(clock, settings.ledger_patience)

    def look() -> Standing | None:
        return patience.over(lambda: ledger.standing(attempt.execution))

    answer_lost = False
    for _ in range(MOST_ROUNDS):
        standing = look()
        sign = read_sign(standing.counters if standing else None, attempt.counters)
        if sign is Sign.OLDER:
            raise AttemptSuperseded(f"a later attempt of {attempt.execution} has been at work; this older one ends")
        if standing is not None and not (answer_lost and standing.owner == attempt.owner):
            if standing.lease_left > 0 and not process.is_dead(standing.owner):
                patience.over(partial(ledger.want, standing.execution_pk, standing.fence, attempt.counters.ti_id))
            if not _freed(standing, look, settings, clock, check):
                continue
        anew, why = _start(sign, attempt, standing)
        try:
            seen = standing.fence if standing else None
            dead = standing is not None and process.is_dead(standing.owner) is True
            taken = ledger.take_over(attempt, sign=sign, seen=seen, new_generation=anew, ttl=ttl, dead=dead)
        except LedgerUnavailableError:
            # It may have been carried out: then we find ourselves as the owner, and take over once more.
            answer_lost = True
            continue
        if taken is not None:
            return replace(taken, why=why)
    raise LedgerError(f"{attempt.execution}: {MOST_ROUNDS} take-overs failed in a row; this attempt gives up")


def _start(sign: Sign, attempt: Attempt, standing: Standing | None) -> tuple[bool, str | None]:
    if standing is None:
        return False, None
    evidence = Evidence(
        heard=standing.heard,
        top=is_top(standing.upstream_digest, attempt.upstream_digest),
        requeued=is_requeue(attempt.counters, standing.requeued_at),
        wish=standing.wish,
    )
    return start(sign, attempt.on_clear, evidence)


def _freed(
    standing: Standing,
    look: Callable[[], Standing | None],
    settings: FlowSettings,
    clock: Clock,
    check: Callable[[], None],
) -> bool:
    """Wait for the owner; ``False``: the row moved, look again."""
    if standing.lease_left <= 0:
        # A finished or parked owner may live on for a moment: Airflow is still hearing of it.
        if standing.state is ExecutionState.RUNNING:
            _end_stale(standing.owner, clock)
        return True
    deadline = clock.monotonic() + settings.handover
    while not process.is_dead(standing.owner) and clock.monotonic() < deadline:
        clock.wait(LOOK_SECONDS)
        check()
        now = look()
        if now is None or now.fence != standing.fence:
            return False
        if now.lease_left <= 0:
            break
    return True


def _end_stale(owner: Owner, clock: Clock) -> None:
    """End a process that let its lease lapse and is found here: stopped, or an orphan that no longer beats."""
    if owner.pid == os.getpid() or process.is_dead(owner) is not False:
        return
    process.kill(owner)
    clock.wait(KILL_SECONDS, until=lambda: process.is_dead(owner) is not False)
