"""
What follows where an effect has an intent and no outcome.

Nobody decides while the owner may be at work: first it is waited for, or verified dead. Then the policy decides:
``retry`` calls again with the same key and the recorded arguments, ``hold`` (and ``ask``, until asking is built) fails
the task at once and leaves the doubt in the ledger.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from uuid import UUID

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import OWN_KEY, EffectId
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import EffectConflictError, EffectInDoubtError, LedgerError
from airflow_aiflow.runtime.effect_seal import check_effect
from airflow_aiflow.runtime.process import is_dead
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session


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


def shown_key(effect: EffectId) -> str:
    """
    Write an effect's key for people.

    :param effect: its identity.
    """
    return "(no key)" if effect.key == OWN_KEY else effect.key


class Doubts:
    """
    Bring one effect out of doubt, or stop.

    :param session: the attempt at work.
    :param name: the effect's name.
    :param options: its options.
    """

    def __init__(self, session: Session, name: str, options: EffectOptions) -> None:
        self._session = session
        self._name = name
        self._options = options

    def settle(self, found: EffectRecord, request: Request) -> tuple[int, Request | None]:
        """
        Decide what follows an effect whose row does not allow an intent.

        :param found: the row; not succeeded.
        :param request: today's request.
        :return: the intent number to go on from, and the recorded request where that one must be called again.
        :raises EffectInDoubtError: where a person must decide.
        :raises AttemptParked: where the owner may be at work for longer than the slot is kept.
        """
        if found.state is EffectState.INTENDED:
            found = self._gone(found)
        if found.state is not EffectState.IN_DOUBT:
            return found.intent_no, None
        if self._options.on_in_doubt != "retry":
            raise EffectInDoubtError(self._message(found))
        recorded = RecordedRequest.read(self._session.payloads.raw(found.request, self._name))
        if not recorded.same(request, self._options.identity) and found.execution != self._session.attempt.execution:
            raise EffectConflictError(
                f"effect '{self._name}' key {found.effect.key} is in doubt since {found.intended_at:%Y-%m-%d %H:%M} "
                f"with another request: {self._session.services.host.redact(recorded.difference(request))}. "
                f"Nothing was sent"
            )
        # Whoever decides first wins; then the row is looked at again.
        self._session.recorder.decide(found.intent_id, "retry", by="policy")
        return found.intent_no, recorded.as_request(request)

    def after_unknown(self, intended: OpenIntent, error: Exception, *, again: bool) -> None:
        """
        Follow a call of our own whose outcome is unknown.

        :param intended: the intent.
        :param error: what the call raised.
        :param again: whether this attempt has a try left. Without one the doubt stands: the next attempt calls with
            the recorded request, under the policy that it finds then.
        :raises EffectInDoubtError: unless the policy calls again.
        """
        self.mark(intended.intent_id)
        if self._options.on_in_doubt == "retry":
            if not again:
                raise error
            self._session.recorder.decide(intended.intent_id, "retry", by="policy")
            return
        try:
            found = self._session.recorder.effect(intended.effect)
        except LedgerError:
            raise error from None  # the next attempt finds the open intent
        if found is not None and found.state is EffectState.IN_DOUBT:
            raise EffectInDoubtError(self._message(found)) from error
        raise error

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
            ours = found.lease == session.taken.lease
            dead = not found.live and is_dead(found.owner) is True
            if ours and spool is not None and spool.take_in(session.services.ledger, session.services.host):
                pass  # the outcome may have been among what waited there
            elif ours or dead or (not found.live and found.gone_in <= 0):
                session.gate.check()
                recorder.doubt(found.intent_id)
            elif clock.monotonic() >= deadline:
                session.gate.park(
                    max(found.gone_in, settings.reschedule_delay),
                    f"effect '{self._name}' key {shown_key(found.effect)} is in the hands of {found.execution}",
                )
            else:
                session.gate.check()
                session.pause(min(1.0, max(found.gone_in, 0.1)))
            again = recorder.effect(found.effect)
            assert again is not None
            found = again
        return found

    def _message(self, found: EffectRecord) -> str:
        dead = is_dead(found.owner) is True
        sure = "its process is verified dead" if dead else "its process is presumed gone, not verified dead"
        return (
            f"effect '{self._name}' key {shown_key(found.effect)} (#{found.effect_pk}) was begun "
            f"{found.intended_at:%H:%M:%S} UTC by attempt {found.attempt_number} of {found.execution} and has no "
            f"outcome; {sure}. Nothing was sent now. Look at the target: a person must say whether it happened. A "
            f"target that dedups by ctx.idempotency_key can be called again by itself with on_in_doubt='retry'"
        )
