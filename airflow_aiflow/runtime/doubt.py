"""
What follows where an effect has an intent and no outcome.

Nobody decides while the owner may be at work: first it is waited for, or verified dead. Then the target is asked, where
the author says how; then the policy decides: ``ask`` puts a question into the inbox and gives the slot back, ``hold``
fails the task at once, ``retry`` calls again with the same key. Whoever decides first wins, and after a decision the
row is looked at again. A call after doubt is made with the recorded arguments.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID

from airflow_aiflow.durable.effect import Decision, EffectRecord, EffectState
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import FAIL, QuestionWrite
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.reconcile import CannotTell, DidNotHappen, Happened, StillPending
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import EffectConflictError, EffectDeclinedError, EffectInDoubtError, LedgerError
from airflow_aiflow.runtime.doubt_form import (
    LOOK_FIRST,
    describe,
    doubt_form,
    gone_how,
    others_in_doubt,
    shown_key,
    subject_of,
)
from airflow_aiflow.runtime.effect_result import store_result
from airflow_aiflow.runtime.effect_seal import check_effect, seal_effect
from airflow_aiflow.runtime.process import is_dead
from airflow_aiflow.runtime.questions import binding, is_over, put, wait_for
from airflow_aiflow.runtime.reconciling import ask_target, trusted_no
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session

#: Seconds between two looks at a call that another execution has left to go on later: it may come back at any time.
LOOK_AT_ABSENT = 300.0

#: Decisions after which the call is made again.
AGAIN = ("did_not_happen", "retry")


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """Hold an intent of this attempt's that is committed and has no outcome yet."""

    effect: EffectId
    intent_id: UUID
    intent_no: int
    repeat: int
    request_fp: bytes
    #: The worker's clock before the intent was asked for, seconds since boot.
    began: float


@dataclass(frozen=True, slots=True)
class _Case:
    """Hold one doubt while it is settled."""

    found: EffectRecord
    recorded: RecordedRequest
    request: Request
    #: What this attempt's own call raised; ``None``: the call was an earlier one's.
    error: Exception | None


class Doubts:
    """
    Bring one effect out of doubt, or stop.

    :param session: the attempt at work.
    :param name: the effect's name.
    :param options: its options.
    :param as_type: the class that rebuilds its result.
    """

    def __init__(self, session: Session, name: str, options: EffectOptions, as_type: Any) -> None:
        self._session = session
        self._name = name
        self._options = options
        self._as_type = as_type
        #: Whether an earlier call with our key may have been applied, and the policy calls again.
        self.retried = False

    def settle(self, found: EffectRecord, request: Request) -> tuple[int, Request | None]:
        """
        Decide what follows an effect whose row does not allow an intent, or not one on what was seen.

        :param found: the row; not succeeded.
        :param request: today's request.
        :return: the intent number to go on from, and the recorded request where that one must be called again.
        :raises EffectInDoubtError: where a person must decide.
        :raises AttemptParked: where the owner may be at work for longer than the slot is kept, or a person is asked.
        """
        if found.state is EffectState.INTENDED:
            found = self._gone(found)
        if found.state is EffectState.FAILED and found.decision in AGAIN:
            # Who decided was killed before the next intent, or was a person.
            return found.intent_no, self._again(self._case(found, request), found.decision)
        if found.state is not EffectState.IN_DOUBT:
            return found.intent_no, None
        return found.intent_no, self._decide(self._case(found, request))

    def after_unknown(self, intended: OpenIntent, request: Request, error: Exception, *, again: bool) -> None:
        """
        Follow a call of our own whose outcome is unknown. Returns where the row is to be looked at again.

        :param intended: the intent.
        :param request: what was called.
        :param error: what the call raised.
        :param again: whether this attempt has a try left. Without one the doubt stands: the next attempt calls with
            the recorded request, under the policy that it finds then.
        :raises EffectInDoubtError: unless the target or the policy says what follows.
        """
        self.mark(intended.intent_id)
        options = self._options
        quick = options.on_in_doubt == "retry" and options.reconcile is None and options.retry_window is None
        if quick and again:
            self.retry(intended.intent_id)
            return
        if options.on_in_doubt == "retry" and options.reconcile is None and not again:
            raise error
        try:
            found = self._session.recorder.effect(intended.effect)
            if found is not None and found.state is EffectState.INTENDED and found.intent_id == intended.intent_id:
                self._session.recorder.doubt(intended.intent_id)  # the ledger was away for a moment
                found = self._session.recorder.effect(intended.effect)
        except LedgerError:
            raise error from None  # the next attempt finds the open intent
        if found is None or found.state is EffectState.INTENDED:
            raise error
        if found.state is EffectState.IN_DOUBT:
            self._decide(self._case(found, request, error), again=again)

    def _case(self, found: EffectRecord, request: Request, error: Exception | None = None) -> _Case:
        recorded = RecordedRequest.read(self._session.payloads.raw(found.request, self._name))
        return _Case(found, recorded, request, error)

    def _decide(self, case: _Case, *, again: bool = True) -> Request | None:
        """Ask the target, then follow the policy; give the recorded request where it is to be called again."""
        told = ""
        if self._options.reconcile is not None:
            decision, told = self._asked(case)
            if decision == "did_not_happen" and not again:
                assert case.error is not None
                raise case.error
            if decision == "happened":
                return None
            if decision is not None:
                return self._again(case, decision)
        if self._options.on_in_doubt == "retry":
            unfit = self._unfit_for_retry(case)
            if not unfit:
                return self._retried(case, again=again)
            told = f"{told}\n{unfit}".strip()
        if self._options.on_in_doubt == "hold":
            raise EffectInDoubtError(self._message(case.found)) from case.error
        return self._ask(case, told)

    def _asked(self, case: _Case) -> tuple[Decision | None, str]:
        """Ask the target; give the decision that follows, or ``None`` and what a person should know."""
        session, found, reconcile = self._session, case.found, self._options.reconcile
        assert reconcile is not None
        finding = ask_target(session, reconcile, self._options.timeout, found, case.recorded, case.request)
        if isinstance(finding, Happened):
            stored, _ = store_result(session, self._name, finding.result, self._as_type)
            key = session.services.settings.seal_key
            seal = seal_effect(key, found.lease, found.generation, found.intent_id, found.request_fp, stored)
            self._take("happened", found, stored, seal)
            return "happened", ""
        if isinstance(finding, StillPending):
            self._wait_for_target(case, finding)
        if isinstance(finding, CannotTell):
            return None, f"reconcile= can't tell: {finding.why}" if finding.why else "reconcile= can't tell."
        assert isinstance(finding, DidNotHappen)
        if trusted_no(found, case.recorded):
            self._take("did_not_happen", found)
            return "did_not_happen", ""
        return None, (
            "reconcile= says that it did not happen. But the first caller is not verified dead and its request does "
            "not carry our key, so that it may yet be applied."
        )

    def _take(
        self, decision: Decision, found: EffectRecord, stored: Stored | None = None, seal: bytes | None = None
    ) -> None:
        session = self._session
        stands = session.recorder.decide(found.intent_id, decision, by="reconcile", result=stored, seal=seal)
        failpoint("after_decide", self._name)
        if not stands:
            return  # somebody was first, or the lease lapsed meanwhile: the row is looked at again
        words = "happened" if decision == "happened" else "did not happen: it is called with the recorded request"
        session.services.host.log(
            f"aiflow: effect '{self._name}' key {shown_key(found.effect)} (#{found.number}) was in doubt; as "
            f"reconcile= says, it {words}"
        )
        data = {"name": self._name, "key": found.effect.key, "number": found.number, "decision": decision}
        session.recorder.note("effect_reconciled", data)

    def _wait_for_target(self, case: _Case, finding: StillPending) -> NoReturn:
        found, limit = case.found, self._options.in_doubt_timeout
        if found.age > limit:
            raise EffectInDoubtError(
                f"{self._message(found)}. The target has said for more than {limit:g} s that it is at work on it"
            ) from case.error
        assert isinstance(finding.check_in, float)
        self._session.gate.park(
            max(finding.check_in, self._session.services.settings.reschedule_delay),
            f"the target is still at work on effect '{self._name}' key {shown_key(found.effect)} (#{found.number})",
        )

    def _unfit_for_retry(self, case: _Case) -> str:
        """Say why the policy ``retry`` can't be followed; empty: it can."""
        window = self._options.retry_window
        if not case.recorded.keyed:
            return "It was not called again, for the target was not given our idempotency key with it."
        if window is not None and case.found.age >= window:
            return f"It was not called again, for the target remembers our key for {window:g} s alone."
        return ""

    def _retried(self, case: _Case, *, again: bool) -> Request | None:
        if not again:
            assert case.error is not None
            raise case.error
        request = self._again(case, "retry")
        self.retry(case.found.intent_id)
        return request

    def refused(self, intended: OpenIntent) -> None:
        """
        Settle a call of our own that was surely not applied.

        After a policy's retry an earlier call with our key may have been applied all the same: then the effect stays
        one that is called again with the recorded request, whoever comes next.

        :param intended: the intent.
        """
        if self.retried:
            self.mark(intended.intent_id)
            self.retry(intended.intent_id)
        else:
            self._session.recorder.settle(intended.intent_id, "not_applied", None)

    def retry(self, intent_id: UUID) -> None:
        """
        Decide by policy that a call in doubt is made again. Whoever decides first wins; then the row is looked at.

        :param intent_id: the intent in doubt.
        """
        self.retried = True
        self._session.recorder.decide(intent_id, "retry", by="policy")
        failpoint("after_decide", self._name)

    def _again(self, case: _Case, decision: Decision) -> Request | None:
        """
        Give the recorded request, to be called again.

        Another execution that shares the key has a request of its own. Where the earlier one surely did not happen,
        that is called; where it may have, nothing is.
        """
        found, recorded, request = case.found, case.recorded, case.request
        self.retried |= decision == "retry"
        if found.execution == self._session.attempt.execution or recorded.same(request, self._options.identity):
            if not recorded.same(request, None):
                self._tell_recorded(case)
            return recorded.as_request(request)
        if decision != "retry":
            return None
        difference = recorded.difference(request, self._session.services.host.redact)
        raise EffectConflictError(
            f"effect '{self._name}' key {shown_key(found.effect)} (#{found.number}) is in doubt since "
            f"{found.intended_at:%Y-%m-%d %H:%M} with another request: {difference}. Nothing was sent"
        )

    def _tell_recorded(self, case: _Case) -> None:
        difference = case.recorded.difference(case.request, self._session.services.host.redact)
        self._session.services.host.log(
            f"aiflow: effect '{self._name}' key {shown_key(case.found.effect)} was in doubt and is called with the "
            f"recorded request, which is not today's: {difference}",
            warning=True,
        )

    def _ask(self, case: _Case, told: str) -> Request | None:
        """Ask a person and give the slot back; what was answered is found in the ledger by who comes back."""
        session, found, options = self._session, case.found, self._options
        first = describe(session, found, case.request, told)
        question = put(
            session,
            QuestionWrite(
                kind="doubt",
                name=self._name,
                bound_to=binding(session, "doubt", found.intent_id.bytes),
                subject=subject_of(found),
                body=f"{first.text}\n{LOOK_FIRST}",
                options=(FAIL,),
                effect=found.effect,
                intent_id=found.intent_id,
                assigned_users=tuple(options.assigned_users),
                timeout=options.in_doubt_timeout,
            ),
        )
        where = f"effect '{self._name}' key {shown_key(found.effect)}"
        if question.answer is not None:
            raise EffectDeclinedError(
                f"{where} (#{found.number}) is in doubt, and {question.answer.by} told the task to fail. The doubt "
                f"stays: aiflow effects resolve {found.number} --happened | --did-not-happen, then clear the task"
            ) from case.error
        if is_over(question):
            raise EffectInDoubtError(
                f"{self._message(found)}. Nobody answered in {options.in_doubt_timeout:g} s; the doubt stays"
            ) from case.error
        session.journal.effect(
            self._name,
            shown_key(found.effect),
            f"IN DOUBT: begun {found.intended_at:%H:%M:%S} by attempt {found.attempt_number}, no outcome. "
            f"Waiting for a person (#{found.number})",
            warning=True,
        )
        others = [describe(session, other, None) for other in others_in_doubt(session, found)]
        wait_for(session, doubt_form(question, [first, *others]), f"{where} is in doubt (#{found.number})")

    def twice(self, intended: OpenIntent, stored: Stored) -> Stored:
        """
        Tell people that a call of ours was applied beside another one, or may have been.

        :param intended: the intent; its success is recorded.
        :param stored: its result.
        :return: the result that stands, whoever brought it: every try must get the same.
        """
        session, effect = self._session, intended.effect
        session.services.host.log(
            f"effect '{self._name}' key {shown_key(effect)} may have happened twice: a call that was in doubt, or a "
            f"repeat, was applied as well. Look at the target",
            warning=True,
        )
        session.recorder.note("effect_twice", {"name": self._name, "key": effect.key})
        with contextlib.suppress(LedgerError):
            found = session.recorder.effect(effect)
            if found is not None and found.state is EffectState.SUCCEEDED and found.result is not None:
                check_effect(session.services.settings.seal_key, found)
                return found.result
        return stored

    def mark(self, intent_id: UUID) -> None:
        """
        Put an intent of our own in doubt; where the ledger is lost, its lapsed lease says the same.

        :param intent_id: the intent.
        """
        with contextlib.suppress(LedgerError):
            self._session.services.ledger.doubt(self._session.taken.lease, intent_id)

    def _gone(self, found: EffectRecord) -> EffectRecord:
        """Wait until the owner of an open intent is gone, then put it in doubt; give the row as it is then."""
        session, recorder, spool = self._session, self._session.recorder, self._session.spool
        settings, clock = session.services.settings, session.services.clock
        deadline = clock.monotonic() + settings.busy_wait
        while found.state is EffectState.INTENDED:
            same = found.lease.execution_pk == session.taken.lease.execution_pk
            # Who left it on purpose comes back, but for another attempt of its own execution: that is this one.
            ours, away = found.lease == session.taken.lease or (same and found.absent), found.absent and not same
            dead = not found.live and not away and is_dead(found.owner) is True
            if ours and spool is not None and spool.take_in(session.services.ledger, session.services.host):
                pass  # the outcome may have been among what waited there
            elif ours or dead or (not found.live and found.gone_in <= 0):
                session.gate.check()
                recorder.doubt(found.intent_id)
            elif clock.monotonic() >= deadline:
                session.gate.park(
                    max(min(found.gone_in, LOOK_AT_ABSENT) if away else found.gone_in, settings.reschedule_delay),
                    f"effect '{self._name}' key {shown_key(found.effect)} is in the hands of {found.execution}"
                    + (", which has left it to go on later" if away else ""),
                )
            else:
                session.gate.check()
                session.pause(min(1.0, max(found.gone_in, 0.1)))
            again = recorder.effect(found.effect)
            assert again is not None
            found = again
        return found

    def _message(self, found: EffectRecord) -> str:
        return (
            f"effect '{self._name}' key {shown_key(found.effect)} (#{found.number}) was begun "
            f"{found.intended_at:%H:%M:%S} UTC by attempt {found.attempt_number} of {found.execution} and has no "
            f"outcome; {gone_how(found)}. Nothing was sent now. Look at the target, then: aiflow effects resolve "
            f"{found.number} --happened | --did-not-happen. A target that can be asked is asked with reconcile=; one "
            f"that dedups by ctx.idempotency_key can be called again by itself with on_in_doubt='retry'"
        )
