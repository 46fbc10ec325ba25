"""
Keep looking until something has to be done: what the sensor does, in a trigger or by itself.

Between two looks at the ledger the processes at work on this machine are looked at, which costs no query: a dead one is
found within a second.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.recovery_port import RecoveryLedger
from airflow_aiflow.durable.stall import Settle, StallKind
from airflow_aiflow.durable.submission import Submission, Submissions
from airflow_aiflow.exceptions import (
    AiflowError,
    AirflowRefusedError,
    AirflowUnavailableError,
    LedgerError,
    LedgerUnavailableError,
)
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.recovery.airflow_view import AirflowView
from airflow_aiflow.recovery.one_pass import look, note
from airflow_aiflow.recovery.outside import Outside
from airflow_aiflow.recovery.unmade import end_wished, make_unmade
from airflow_aiflow.runtime.process import is_dead

log = logging.getLogger(__name__)

#: Seconds between two looks for what could not be told, or came about by itself: where a notifier fails, a new try a
#: minute is enough.
TELL_EVERY = 60.0

#: Seconds for which nobody was at work on a doubt before it is told: the next attempt may settle it.
DOUBT_GRACE = 60.0

#: HTTP statuses from which on it is the server's trouble, not the request's.
SERVERS_TROUBLE = 500

#: Seconds between two looks at what has no attempt: Airflow is asked for it, and minutes do not matter there.
OUTSIDE_EVERY, IDLE_EVERY = 60.0, 300.0

#: Seconds between two looks at what clients wished: an API server is quicker, and this is for where it died.
WISHED_EVERY = 30.0

#: Seconds between two looks for requeues that were broken off: mostly before the task that came back has ended.
MADE_UP_EVERY = 20.0

#: Seconds between two steps of forgetting what nobody may reuse any more.
REAP_EVERY = 60.0

#: Finds named in the log; the rest are in the ledger.
NAMED = 3


@dataclass
class Watch:
    """
    Look again and again.

    :param ledger: knows what stalls.
    :param api: Airflow's REST API.
    :param policy: the deployment's.
    :param untold: says whether somebody is still to hear of something; ``None``: there is nobody to tell.
    :param clock: gives seconds that only grow.
    :param submissions: whose runs are made that a server left unmade; ``None``: nobody's.
    :param at_once: whether the first look is also one for what is looked at now and then: where it is the only one.
    :param looked: when that was last looked at, by ``clock``; given on from watch to watch by a process that has many,
        since each find ends a watch and the next one would else begin to count anew.
    """

    ledger: RecoveryLedger
    api: AirflowApi
    policy: RecoveryPolicy
    untold: Callable[[], bool] | None = None
    clock: Callable[[], float] = time.monotonic
    submissions: Submissions | None = None
    at_once: bool = False
    looked: dict[str, float] = field(default_factory=dict)
    _known: Sequence[Owner] = field(default=(), init=False)

    def __post_init__(self) -> None:
        # The first watch begins with waiting: so what can't be cured is tried once a minute and no oftener.
        begun = float("-inf") if self.at_once else self.clock()
        for what in ("tell", "outside", "idle", "wished", "made_up", "reap"):
            self.looked.setdefault(what, begun)

    def finds(self) -> str | None:
        """
        Look once, and note what is left alone.

        :return: what has to be done, for people; ``None``: nothing, also where ledger or Airflow could not be asked.
        """
        try:
            self._make_unmade()
            found = look(self.ledger, self.api, self.policy)
            note(self.ledger, found.notes)
            self._known = found.owners
            if found.deeds:
                return "; ".join(f"{one.stall.execution}: {what.why}" for one, what in found.deeds[:NAMED])
            queued = self._not_started()
            if queued is not None:
                return queued
            if self._is_due("made_up", MADE_UP_EVERY) and (broken := self.ledger.broken_off()):
                return f"{broken[0][2]}: its requeue was broken off after the clear"
            if self._should_tell(found.reports):
                return "somebody is to hear of something"
            if self._is_due("reap", REAP_EVERY):
                self.ledger.reap_reuse(self.policy.reuse_kept)
        except (LedgerUnavailableError, AirflowUnavailableError, AirflowRefusedError) as error:
            if not passes(error):
                raise
            log.warning("aiflow: this look is skipped, the next one makes up for it: %s", error)
        return None

    def _make_unmade(self) -> None:
        """Make what a server left unmade; a row that can't be read must not keep stalled runs from being found."""
        if self.submissions is None:
            return
        try:
            for one in make_unmade(self.submissions, self.api):
                self._note_made(one)
            if self._is_due("wished", WISHED_EVERY):
                end_wished(self.submissions, self.api)
        except LedgerUnavailableError:
            raise
        except LedgerError as error:
            log.error("aiflow: runs of submissions are not made: %s", error)

    def _note_made(self, submission: Submission) -> None:
        log.info("aiflow: submission %s had no run; it has one now", submission.submission_id)
        whole = ExecutionId(submission.pipeline, submission.run_id, "")
        age = AirflowView(self.api).age(submission.created_at.isoformat())
        what = Settle(f"submission {submission.submission_id} had no run for {age:.0f} s; it was made")
        self.ledger.noted(whole, StallKind.UNMADE_RUN, what, age=age)

    def somebody_died(self) -> bool:
        """Say whether a process of this machine that was at work at the last look is gone; asks nobody."""
        return any(is_dead(owner) for owner in self._known)

    def _not_started(self) -> str | None:
        """Look at what has no attempt, now and then."""
        outside = Outside(self.ledger, self.api, self.policy)
        if self._is_due("idle", IDLE_EVERY):
            # A look that comes to nothing is made up for sooner than in five minutes.
            self.looked["idle"] += OUTSIDE_EVERY - IDLE_EVERY
            outside.note_idle_runs()
            self.looked["idle"] += IDLE_EVERY - OUTSIDE_EVERY
        queued = outside.not_started() if self._is_due("outside", OUTSIDE_EVERY) else []
        return f"{queued[0][0]} has been queued for {queued[0][1]:.0f} s" if queued else None

    def _should_tell(self, reported: bool) -> bool:
        if self.untold is None or not (self._is_due("tell", TELL_EVERY) or reported):
            return False
        return self.untold()

    def _is_due(self, what: str, every: float) -> bool:
        now = self.clock()
        if now - self.looked[what] < every:
            return False
        self.looked[what] = now
        return True


def passes(error: AiflowError) -> bool:
    """
    Say whether a trouble is one that goes by itself: then a pass is skipped, and the next one makes up for it.

    :param error: what came out of a look or a deed.
    """
    return not isinstance(error, AirflowRefusedError) or error.status >= SERVERS_TROUBLE


class Doubts(Protocol):
    """Know of effects in doubt."""

    def untold(self, *, grace: float, limit: int) -> Sequence[object]:
        """List effects in doubt that nobody is at work on and nobody was told of."""


def somebody_waits(ledger: RecoveryLedger, doubts: Doubts) -> bool:
    """
    Say whether somebody is still to hear of an incident or a doubt.

    :param ledger: knows incidents.
    :param doubts: knows doubts.
    """
    return bool(ledger.unalerted(1) or doubts.untold(grace=DOUBT_GRACE, limit=1))
