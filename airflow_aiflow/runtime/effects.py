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
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from airflow_aiflow.durable.classify import classify
from airflow_aiflow.durable.effect import (
    AlreadyThere,
    EffectRecord,
    EffectState,
    FenceMoved,
    Intended,
    IntentWrite,
    LeaseLapsed,
)
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.identity import EffectId, idempotency_key
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import AttemptSuperseded, EffectOptionError, EffectTimeoutError, FlowOptionError
from airflow_aiflow.runtime.conflict import judge
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.doubt import Doubts, OpenIntent, shown_key
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


class EffectCall:
    """
    Carry out one call of an effect.

    :param session: the attempt at work.
    :param name: the effect's name.
    :param fn: the author's function.
    :param args: its arguments.
    :param options: checked.
    :param identify: gives the effect's identity; called when nothing else can be refused any more.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        options: EffectOptions,
        identify: Callable[[str, EffectOptions], EffectId],
    ) -> None:
        self._session = session
        self._options = options
        self._as_type = result_type(fn)
        self._request = make_request(name, fn, args, secrets=session.secrets)
        self._request.check_identity(name, options.identity)
        if options.on_in_doubt == "retry" and not self._request.takes_ctx:
            raise EffectOptionError(
                f"effect '{name}': on_in_doubt='retry' calls the target again, so the target must get the idempotency "
                f"key: make the function's first parameter `ctx` and send ctx.idempotency_key. Nothing was sent"
            )
        if options.on_conflict == "ask":
            raise FlowOptionError(f"effect '{name}': on_conflict='ask' is not built yet; use 'auto', 'fail' or 'keep'")
        secret = session.payloads.secret_in_clear([*self._request.args, self._request.kwargs])
        if secret:
            raise EffectOptionError(
                f"effect '{name}': its request holds a secret (argument {secret}), which the ledger would keep in "
                f"clear. Read the secret inside the function, from a connection, or set [aiflow] payload_keys. "
                f"Nothing was sent"
            )
        self._doubts = Doubts(session, name, options)
        self._effect = identify(name, options)

    def run(self) -> Any:
        """
        Replay the effect, or carry it out.

        :return: the recorded result.
        """
        session = self._session
        with flow_call(session), session.effects_in_hand.alone(self._effect, session.gate.check):
            found = session.replay.effects.get(self._effect)
            return self._carry_out() if found is None else self._done_before(found)

    def _carry_out(self) -> Any:
        request, seen, failures = self._request, 0, 0
        # What the author was handling when the effect was called is no sign of what the call did.
        outer = sys.exception()
        while True:
            came = self._try(request, seen)
            if isinstance(came, _Done):
                return came.value
            if isinstance(came, EffectRecord):
                if came.state is EffectState.SUCCEEDED:
                    return self._done_before(came)
                seen, recorded = self._doubts.settle(came, self._request)
                request = recorded or self._request
                continue
            seen = came.intent.intent_no
            if came.error is not None:
                failures += 1
                self._failed(came.error, came.intent, failures, outer)

    def _try(self, request: Request, seen: int) -> _Done | _Raised | EffectRecord:
        """Intend, act and record, in hand as one; an ``EffectRecord``: the row does not allow the intent."""
        session, name = self._session, self._effect.name
        with session.gate.hand(name, self._options.timeout):
            intent = self._intend(request, seen)
            if isinstance(intent, EffectRecord):
                return intent
            if not self._may_act(intent):
                return _Raised(intent, None)
            try:
                value = self._act(request, intent)
            except Exception as error:
                return _Raised(intent, error)
            failpoint("after_act", name)
            return _Done(self._record(value, intent))

    def _intend(self, request: Request, seen: int) -> OpenIntent | EffectRecord:
        session, name = self._session, self._effect.name
        failpoint("before_intent", name)
        intent = IntentWrite(
            intent_id=uuid4(),
            effect=self._effect,
            seen=seen,
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

    def _act(self, request: Request, intent: OpenIntent) -> Any:
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
        stored, secret = self._stored(value)
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

    def _stored(self, value: Any) -> tuple[Stored, bool]:
        """Store a result; the effect happened, and that must be recorded whatever its result is."""
        payloads, log, name = self._session.payloads, self._session.services.host.log, self._effect.name
        try:
            secret = payloads.secret_in_clear(value)
            if secret is None:
                return payloads.save(value, name, self._as_type, whatever_size=True), False
        except Exception as error:  # the value may be any object of the author's
            log(f"the result of effect '{name}' can't be stored ({error}): its text is kept instead", warning=True)
            return payloads.save(payloads.as_text(value), name, str, whatever_size=True), False
        log(
            f"the result of effect '{name}' holds a secret at {secret}: the effect is recorded as done, its result is "
            f"not",
            warning=True,
        )
        return payloads.save(None, name), True

    def _failed(self, error: Exception, intent: OpenIntent, failures: int, outer: BaseException | None) -> None:
        """Settle or doubt an intent whose call raised; raise, or return when it may be made again."""
        session, name = self._session, self._effect.name
        seen = classify(error, handling=outer)
        error.add_note(f"aiflow: in effect '{name}', {session.where}: {seen.kind.replace('_', ' ')} ({seen.why})")
        again = failures <= self._options.retries
        if seen.kind == "unknown":
            self._doubts.after_unknown(intent, error, again=again)
        else:
            session.recorder.settle(intent.intent_id, "not_applied", None)
            if not again:
                raise error
        if seen.retry_after is not None and seen.retry_after > LONGEST_WAIT:
            session.gate.park(seen.retry_after, f"effect '{name}' is to be tried again in {seen.retry_after:.0f} s")
        # Past the longest wait the exponent decides nothing any more.
        own = min(FIRST_PAUSE * 2 ** min(failures - 1, 10), LONGEST_WAIT)
        session.pause(own if seen.retry_after is None else seen.retry_after)

    def _done_before(self, found: EffectRecord) -> Any:
        session, name = self._session, self._effect.name
        check_effect(session.services.settings.seal_key, found)
        note = judge(session, found, self._request, self._options)
        value = None if found.result is None else session.payloads.load_done(found.result, name, self._as_type)
        ours = found.execution == session.attempt.execution
        by = "" if ours else f" by run {found.execution.run_id}"
        session.journal.effect(
            name,
            shown_key(self._effect),
            f"done before{by}: not sent again{note}",
            warning=bool(note) or found.execution.run_id != session.attempt.execution.run_id,
        )
        return value
