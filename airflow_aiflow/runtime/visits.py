"""
An effect that one attempt carries out in several processes: its slot goes back in mid-call, and the same attempt goes
on later, as operators do that defer or reschedule themselves.

The intent stays open over the visits and is settled by the last one. Whoever goes on must prove that the process before
left on purpose and that nobody else went on from there: on leaving, a ticket is recorded under (intent, visit) before
the host hears of it; on coming back, the ticket is taken under the fence of the process that takes it, and the first
one has it. An open intent without a ticket, or with one that is taken, is a call whose process was lost: it is in doubt
like any other. The intent itself says until when it is left, and which process holds it, for whoever else looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.identity import EffectId, step_key
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.runtime.doubt import OpenIntent
from airflow_aiflow.runtime.effects import EffectCall
from airflow_aiflow.runtime.requests import RecordedRequest
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall, run_step

#: Seconds for which nobody takes a call for lost whose process left it without a limit: a week, in which a person looks
#: at a task that hangs. A task that is begun anew before knows by itself that nobody comes back.
LONGEST_ABSENCE = 7 * 86_400.0

#: How a first visit begins.
BEGIN = "execute"


@dataclass(frozen=True, slots=True)
class Left:
    """
    Be given by an effect's function that leaves in mid-call.

    :param signal: what tells the host to call again; raised once the ticket is recorded.
    :param enters_by: as what the host will come back.
    :param keep: plain data for the visits to come.
    :param seconds: after which nobody waits for it any more; ``None``: the host sets no limit.
    """

    signal: BaseException
    enters_by: str
    keep: Any = None
    seconds: float | None = None


@dataclass(slots=True)
class Visit:
    """
    Say how this process came to the effect.

    :param enters_by: as what the host called it.
    """

    enters_by: str = BEGIN
    #: What the visits before kept, the oldest first.
    kept: list[Any] = field(default_factory=list)
    #: Whether this process made the call, or its last part.
    acted: bool = False


class _Leaving(BaseException):
    """Carry ``Left`` out of the call, past whatever waits for its outcome."""

    def __init__(self, left: Left, intent: OpenIntent) -> None:
        self.left = left
        self.intent = intent
        super().__init__("left in mid-call")


class VisitedCall(EffectCall):
    """
    Carry out one call of an effect whose function may leave and come back.

    :param fn: takes its arguments by keyword, after a ``ctx`` where it takes one.
    :param told: its arguments.
    :param visit: how this process came here; told afterwards whether it acted.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        fn: Callable[..., Any],
        told: Mapping[str, Any],
        options: EffectOptions,
        identify: Callable[[str, EffectOptions], EffectId],
        visit: Visit,
    ) -> None:
        super().__init__(session, name, partial(fn, **told), (), options, identify)
        self._visit = visit
        self._name = name
        self._number = 0
        self._open: OpenIntent | None = None

    def run(self) -> Any:
        """Replay the effect, go on with it, or begin it."""
        found = self._session.replay.open.get(self._effect)
        if found is not None and self._may_go_on(found):
            self._go_on(found)
        try:
            return super().run()
        except _Leaving as leaving:
            self._leave(leaving.left, leaving.intent)
            raise leaving.left.signal from None

    def _unapproved(self) -> EffectRecord | None:
        # What was left in mid-call has been agreed to.
        return None if self._open is not None else super()._unapproved()

    def _intend(self) -> OpenIntent | EffectRecord:
        if self._open is None:
            return super()._intend()
        self._session.gate.check()
        going_on, self._open = self._open, None
        return going_on

    def _record(self, value: Any, intent: OpenIntent) -> Any:
        if isinstance(value, Left):
            raise _Leaving(value, intent)
        self._visit.acted = True
        return super()._record(value, intent)

    def _may_go_on(self, found: EffectRecord) -> bool:
        """Look for the last ticket that this execution left for the intent, and take it."""
        if (
            found.state is not EffectState.INTENDED
            or found.lease.execution_pk != self._session.taken.lease.execution_pk
        ):
            return False
        tickets: list[Any] = []
        while (ticket := self._recorded("left", found, len(tickets))) is not None:
            tickets.append(ticket)
        if not tickets or tickets[-1]["enters_by"] != self._visit.enters_by:
            return False
        self._number = len(tickets)
        self._visit.kept = [ticket["keep"] for ticket in tickets]
        fence = self._session.taken.lease.fence
        if self._record_once("back", found.intent_id.hex, self._number, fence) != fence:
            return False
        self._held_for(found.intent_id, None)
        return True

    def _go_on(self, found: EffectRecord) -> None:
        session = self._session
        recorded = RecordedRequest.read(session.payloads.raw(found.request, self._name))
        self._calling = recorded.as_request(self._request)
        began = session.services.clock.monotonic()
        self._open = OpenIntent(self._effect, found.intent_id, found.intent_no, found.repeat, found.request_fp, began)

    def _leave(self, left: Left, intent: OpenIntent) -> None:
        failpoint("before_leave", self._name)
        absent = LONGEST_ABSENCE if left.seconds is None else min(left.seconds, LONGEST_ABSENCE)
        self._held_for(intent.intent_id, max(absent, 0.0))
        ticket = {"enters_by": left.enters_by, "keep": left.keep}
        self._record_once("left", intent.intent_id.hex, self._number, ticket)
        failpoint("after_leave", self._name)

    def _held_for(self, intent_id: UUID, absent: float | None) -> None:
        self._session.recorder.over(lambda ledger, lease: ledger.leave(lease, intent_id, seconds=absent))

    def _recorded(self, what: str, found: EffectRecord, number: int) -> Any:
        name, print_ = self._ticket(what, found.intent_id.hex, number)
        record = self._session.replay.find(step_key((), name, print_, 0))
        return None if record is None else self._session.payloads.load(record.result, name)

    def _record_once(self, what: str, intent: str, number: int, value: Any) -> Any:
        name, print_ = self._ticket(what, intent, number)
        call = StepCall(kind="step", name=name, fingerprint=print_, run=partial(Ran, value))
        return run_step(self._session, call)

    def _ticket(self, what: str, intent: str, number: int) -> tuple[str, bytes]:
        # Of this attempt alone: to a later one the operator begins anew, and must not be taken for going on.
        counters = self._session.attempt.counters
        attempt = (str(counters.ti_id), counters.try_number)
        return f"{self._name}: {what}", fingerprint("visit", what, attempt, intent, number)
