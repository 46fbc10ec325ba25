"""
An effect: intend, act, record.

Intent first, in a commit of its own, under the locked fence; then the author's function with our idempotency key; then
the outcome. Between intent and call the attempt's own clock is looked at again. An exception *of the author's function*
is read by its cause chain: surely not applied may be tried again, anything else is unknown, and what is unknown is
never sent again without a policy's or a person's word. What goes wrong before or after that call, in our own ledger or
store, says nothing about the target and is never read so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast, get_args
from uuid import uuid4

import tenacity

from airflow_aiflow.durable.classify import Classified, Kind, classify, tells_model
from airflow_aiflow.durable.effect import (
    OPEN_TO_INTENT,
    AlreadyThere,
    EffectRecord,
    EffectState,
    FenceMoved,
    Intended,
    IntentWrite,
    LeaseLapsed,
)
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.identity import UNDO, EffectId, idempotency_key
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import AttemptSuperseded, EffectOptionError, EffectTimeoutError
from airflow_aiflow.runtime.approval import approve
from airflow_aiflow.runtime.changed_keys import refuse_changed_key
from airflow_aiflow.runtime.compensation import Undoable, by_somebody, still_done
from airflow_aiflow.runtime.conflict import judge
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.doubt import Doubts, OpenIntent
from airflow_aiflow.runtime.doubt_form import shown_key
from airflow_aiflow.runtime.effect_result import store_result
from airflow_aiflow.runtime.effect_seal import check_effect, seal_effect
from airflow_aiflow.runtime.payloads import result_type
from airflow_aiflow.runtime.requests import EffectContext, Request, make_request
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import refuse_unrun

#: Longest wait that keeps the worker's slot; a longer one gives it back.
LONGEST_WAIT = 30.0

#: First pause before a call that was surely not applied is made again; it doubles.
FIRST_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class _Done:
    """Hold the result of a call that is recorded."""

    value: Any


@dataclass(frozen=True, slots=True)
class _Raised:
    """Hold what the author's function raised; ``None``: it was not called, for its intent had grown too old."""

    intent: OpenIntent
    error: Exception | None


class _CallAgain(Exception):
    """Have the call made again after ``pause`` seconds, which the target may have named."""

    def __init__(self, failures: int, retry_after: float | None) -> None:
        # Past the longest wait the exponent decides nothing any more.
        doubled = min(FIRST_PAUSE * float(2 ** min(failures - 1, 10)), LONGEST_WAIT)
        self.pause = doubled if retry_after is None else retry_after
        super().__init__(f"after {failures} failures")


class EffectCall:
    """
    Carry out one call of an effect.

    :param session: the attempt at work.
    :param name: the effect's name.
    :param fn: the author's function.
    :param args: its arguments.
    :param options: checked.
    :param identify: gives the effect's identity; called when nothing else can be refused any more.
    :param request: the request, where it was made already.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        options: EffectOptions,
        identify: Callable[[str, EffectOptions], EffectId],
        *,
        request: Request | None = None,
    ) -> None:
        self._session = session
        self._options = options
        self._as_type = result_type(fn) if request is None else None
        self._request = request or make_request(name, fn, args, secrets=session.secrets)
        if request is None and name.endswith(UNDO):
            raise EffectOptionError(f"effect '{name}': a name that ends with {UNDO} is that of the undo of an effect")
        self._request.check_identity(name, options.identity)
        if options.on_in_doubt == "retry" and not self._request.takes_ctx:
            raise EffectOptionError(
                f"effect '{name}': on_in_doubt='retry' calls the target again, so the target must get the idempotency "
                f"key: make the function's first parameter `ctx` and send ctx.idempotency_key. Nothing was sent"
            )
        secret = session.payloads.secret_in_clear([*self._request.args, self._request.kwargs])
        if secret:
            raise EffectOptionError(
                f"effect '{name}': its request holds a secret (argument {secret}), which the ledger would keep in "
                f"clear. Read the secret inside the function, from a connection, or set [aiflow] payload_keys. "
                f"Nothing was sent"
            )
        self._doubts = Doubts(session, name, options, self._as_type)
        self._effect = identify(name, options)
        #: What is called: today's request, or after a doubt the recorded one.
        self._calling = self._request
        #: The number of the intent on which the next one is based; 0: none was seen.
        self._seen = 0
        self._failures = 0
        #: When an earlier process of this try made the first call that was refused.
        self._since: datetime | None = None

    def run(self) -> Any:
        """
        Replay the effect, or carry it out.

        :return: the recorded result.
        """
        value = self._replayed_or_called()
        if (done := self._undoable()) is not None:
            self._session.undoable.append(done)
        return value

    def _undoable(self) -> Undoable | None:
        options = self._options
        if options.compensate is None:
            return None
        return Undoable(self._effect, options.compensate, options, self._request, self._as_type)

    def _replayed_or_called(self) -> Any:
        session, effect = self._session, self._effect
        with flow_call(session), session.effects_in_hand.alone(effect, session.gate.check):
            found = session.replay.effects.get(effect)
            session.replay.reached.add(effect)
            if found is None:
                refuse_changed_key(session, effect, self._request)
            else:
                done = self._done_before(found)
                if done is not None:
                    return done.value
            # What the author was handling when the effect was called is no sign of what the call did.
            outer = sys.exception()
            try:
                return self._until_called(outer)
            except _CallAgain as again:
                first = again
            # Only now is tenacity's bookkeeping paid for: an effect that works has no time for it.
            wanted = tenacity.retry_if_exception_type(_CallAgain)
            retrying = tenacity.Retrying(retry=wanted, wait=_pause, sleep=session.pause, reraise=True)
            session.pause(first.pause)
            return retrying(self._until_called, outer)

    def _until_called(self, outer: BaseException | None) -> Any:
        """Go from what the row says to the call's outcome; ``_CallAgain`` where it may be made again."""
        while True:
            came = self._unapproved() or self._try()
            if isinstance(came, _Done):
                return came.value
            if isinstance(came, _Raised):
                self._seen = came.intent.intent_no
                if came.error is not None:
                    self._failures += 1 if self._failures else 1 + self._refused_before()
                    self._failed(came.error, came.intent, outer)
            elif came.state is EffectState.SUCCEEDED:
                done = self._done_before(came)
                if done is not None:
                    return done.value
            else:
                self._seen, recorded = self._doubts.settle(came, self._request)
                self._calling = recorded or self._request

    def _unapproved(self) -> EffectRecord | None:
        """Have a person agree to what is sent first; what is known of the effect comes before that."""
        if not self._options.require_approval:
            return None
        found = self._session.recorder.effect(self._effect)
        repeat = 0
        if found is not None:
            if found.intent_no != self._seen or found.state not in OPEN_TO_INTENT:
                return found
            repeat = found.repeat + (found.state is not EffectState.FAILED)
        approve(self._session, self._effect, self._calling, repeat, self._options)
        return None

    def _try(self) -> _Done | _Raised | EffectRecord:
        """Intend, act and record, in hand as one; an ``EffectRecord``: the row does not allow the intent."""
        session, name = self._session, self._effect.name
        with session.gate.hand(name, self._options.timeout):
            intent = self._intend()
            if isinstance(intent, EffectRecord):
                return intent
            if session.taken.failed_over and intent.intent_no == 1:
                return self._forgotten(intent)
            if not self._may_act(intent):
                return _Raised(intent, None)
            try:
                value = self._act(intent)
            except Exception as error:
                return _Raised(intent, error)
            failpoint("after_act", name)
            return _Done(self._record(value, intent))

    def _intend(self) -> OpenIntent | EffectRecord:
        session, name, request = self._session, self._effect.name, self._calling
        failpoint("before_intent", name)
        intent = IntentWrite(
            intent_id=uuid4(),
            effect=self._effect,
            seen=self._seen,
            request=session.payloads.keep(request.encoded(), name),
            request_fp=request.fingerprint(),
            timeout=self._options.timeout,
            generation=session.taken.generation,
        )
        while True:
            session.gate.check()
            began = session.services.clock.monotonic()
            answer = session.recorder.intend(intent)
            if isinstance(answer, Intended):
                failpoint("after_intent", name)
                return OpenIntent(
                    self._effect, answer.intent_id, answer.intent_no, answer.repeat, intent.request_fp, began
                )
            if isinstance(answer, AlreadyThere):
                return answer.found
            if isinstance(answer, FenceMoved):
                session.gate.supersede("a later attempt of this task took over")
            elif isinstance(answer, LeaseLapsed):
                session.heartbeat.beat()

    def _forgotten(self, intent: OpenIntent) -> EffectRecord:
        """Put a call in doubt that an earlier attempt may have made: a replica that took over may lack its intent."""
        self._doubts.mark(intent.intent_id)
        found = self._session.recorder.effect(self._effect)
        assert found is not None
        return found

    def _may_act(self, intent: OpenIntent) -> bool:
        """Look once more before the call; an intent that is not followed by it is settled as not applied."""
        session = self._session
        superseded = session.gate.superseded
        age = session.services.clock.monotonic() - intent.began
        if superseded is None and age <= session.services.settings.start_within:
            return True
        session.recorder.settle(intent.intent_id, "not_applied", None)
        if superseded is not None:
            raise AttemptSuperseded(superseded)
        return False

    def _act(self, intent: OpenIntent) -> Any:
        request = self._calling
        session, name, timeout = self._session, self._effect.name, self._options.timeout
        ctx = EffectContext(
            idempotency_key=idempotency_key(self._effect, intent.repeat),
            key=self._effect.key,
            attempt=session.taken.number,
            fence=session.taken.lease.fence,
            deadline=timeout,
        )
        failpoint("before_act", name)
        try:
            return session.deadlines.run(
                lambda: refuse_unrun(request.call(ctx)),
                timeout,
                lambda: EffectTimeoutError(f"effect '{name}' did not end within {timeout:g} s"),
            )
        except BaseException as error:
            if not isinstance(error, Exception):
                # The attempt, or the process, is told to end in mid-call: nobody knows what the target did.
                self._doubts.mark(intent.intent_id)
            raise

    def _record(self, value: Any, intent: OpenIntent) -> Any:
        session, name = self._session, self._effect.name
        stored, secret = store_result(session, name, value, self._as_type)
        failpoint("before_record", name)
        key, taken = session.services.settings.seal_key, session.taken
        seal = seal_effect(key, taken.lease, taken.generation, intent.intent_id, intent.request_fp, stored)
        settled = session.recorder.settle(intent.intent_id, "succeeded", stored, seal)
        failpoint("after_record", name)
        if settled.duplicate_suspected:
            stored = self._doubts.twice(intent, stored)
        session.recorder.note("effect", {"name": name, "key": self._effect.key, "outcome": "succeeded"})
        session.journal.effect(name, shown_key(self._effect), "done")
        return value if secret else session.payloads.load_done(stored, name, self._as_type)

    def _refused_before(self) -> int:
        """Count what the processes of this try before this one were refused: each gave its slot back meanwhile."""
        session = self._session
        if session.taken.sign is not Sign.SAME:
            return 0
        refusals = session.recorder.over(lambda ledger, lease: ledger.refused(lease, self._effect))
        self._since = refusals.since
        return refusals.number

    def _failed(self, error: Exception, intent: OpenIntent, outer: BaseException | None) -> None:
        """
        Settle or doubt an intent whose call raised. Returns where the row is to be looked at again.

        :raises _CallAgain: where the call may be made again.
        """
        session, name = self._session, self._effect.name
        seen = self._read(error, outer)
        error.add_note(f"aiflow: in effect '{name}', {session.where}: {seen.kind.replace('_', ' ')} ({seen.why})")
        # The same arguments would meet the same answer: it is the model that is to try again, with others.
        again = self._failures <= self._options.retries and not (seen.kind != "unknown" and tells_model(error))
        if seen.kind == "unknown":
            self._doubts.after_unknown(intent, self._calling, error, again=again)
            if not self._doubts.retried:
                return  # the target was asked: no pause, for nothing is refused
        else:
            self._doubts.refused(intent)
            if not again:
                if self._since is not None:
                    error.add_note(
                        f"aiflow: refused {self._failures} times since {self._since:%Y-%m-%d %H:%M:%S} UTC: "
                        f"retries={self._options.retries} are used up in this try of the task"
                    )
                raise error
        if seen.retry_after is not None and seen.retry_after > LONGEST_WAIT:
            session.gate.park(seen.retry_after, f"effect '{name}' is to be tried again in {seen.retry_after:.0f} s")
        raise _CallAgain(self._failures, seen.retry_after)

    def _read(self, error: Exception, outer: BaseException | None) -> Classified:
        """Read an exception by the author's own ``classify=``, else by ours."""
        ours, own = classify(error, handling=outer), self._options.classify
        if own is None:
            return ours
        try:
            kind = own(error)
        except Exception as trouble:  # the author's
            error.add_note(f"aiflow: classify= raised {type(trouble).__name__}: {trouble}; it is read as ours says")
            return ours
        if kind is None:
            return ours
        if kind not in get_args(Kind):
            error.add_note(
                f"aiflow: classify= gave {kind!r}, which is none of {', '.join(map(repr, get_args(Kind)))} or None; it "
                f"is read as ours says"
            )
            return ours
        return replace(ours, kind=kind, why="classify= says so")

    def _done_before(self, found: EffectRecord) -> _Done | None:
        """Give the recorded result; ``None``: it was released or taken back, to be done once more."""
        session, name = self._session, self._effect.name
        check_effect(session.services.settings.seal_key, found)
        # A person may take back what the author has no `compensate=` for.
        how = self._undoable() or Undoable(self._effect, by_somebody, self._options, self._request, self._as_type)
        if still_done(session, how, found) is None:
            self._seen, self._calling = found.intent_no, self._request
            return None
        verdict = judge(session, found, self._request, self._options)
        if verdict.released:
            session.replay.effects.pop(self._effect, None)
            self._seen, self._calling = found.intent_no, self._request
            return None
        value = None if found.result is None else session.payloads.load_done(found.result, name, self._as_type)
        by = self._done_elsewhere(found)
        text = f"done before{by}: not sent again{verdict.note}"
        session.journal.effect(name, shown_key(self._effect), text, warning=bool(verdict.note or by))
        return _Done(value)

    def _done_elsewhere(self, found: EffectRecord) -> str:
        """Say where it was done, if not by this generation: whoever started anew may expect that it happens again."""
        ours = self._session.attempt.execution
        if found.execution.run_id != ours.run_id:
            return f" by run {found.execution.run_id}"
        if found.execution != ours:
            return f" by {found.execution}"
        return f" in generation {found.generation}" if found.generation < self._session.taken.generation else ""


def _pause(state: tenacity.RetryCallState) -> float:
    return cast(_CallAgain, state.outcome and state.outcome.exception()).pause
