"""
An effect: intend, act, record.

Intent first, in a commit of its own, under the locked fence; then the author's function with our idempotency key; then
the outcome. Between intent and call the attempt's own clock is looked at again. An exception is read by its cause
chain: surely not applied may be tried again, anything else is unknown, and what is unknown is never sent again without
a policy's or a person's word.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
from airflow_aiflow.durable.identity import (
    OWN_KEY,
    UNMAPPED,
    EffectId,
    Scope,
    effect_namespace,
    idempotency_key,
    own_namespace,
)
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.exceptions import (
    AttemptParked,
    AttemptSuperseded,
    EffectKeyRequiredError,
    EffectOptionError,
    EffectTimeoutError,
    FlowOptionError,
    FlowSignal,
    PayloadEncodeError,
)
from airflow_aiflow.runtime.conflict import judge
from airflow_aiflow.runtime.current import current_unit
from airflow_aiflow.runtime.doubt import Doubts, OpenIntent
from airflow_aiflow.runtime.payloads import result_type
from airflow_aiflow.runtime.requests import EffectContext, Request, make_request
from airflow_aiflow.runtime.session import Session

#: Longest wait that keeps the worker's slot; a longer one gives it back.
LONGEST_WAIT = 30.0

#: First pause before a call that was surely not applied is made again; it doubles.
FIRST_PAUSE = 1.0


class _Expired(Exception):
    """The intent grew too old before its call; it is settled as not applied."""


class EffectCall:
    """
    Carry out one call of an effect.

    :param session: the attempt at work.
    :param name: the effect's name.
    :param fn: the author's function.
    :param args: its arguments.
    :param options: checked.
    :param effect: the effect's identity.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        options: EffectOptions,
        effect: EffectId,
    ) -> None:
        self._session = session
        self._options = options
        self._effect = effect
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
        secret = session.payloads.secret_in([*self._request.args, self._request.kwargs])
        if secret:
            raise EffectOptionError(
                f"effect '{name}': its request holds a secret (argument {secret}), which the ledger would keep in "
                f"clear. Read the secret inside the function, from a connection. Nothing was sent"
            )
        self._doubts = Doubts(session, name, options)

    def run(self) -> Any:
        """
        Replay the effect, or carry it out.

        :return: the recorded result.
        """
        found = self._session.replay.effects.get(self._effect)
        if found is not None:
            return self._done_before(found)
        seen, failures = 0, 0
        # What the author was handling when the effect was called is no sign of what the call did.
        outer = sys.exception()
        while True:
            request = self._request
            intended = self._intend(request, seen)
            if isinstance(intended, EffectRecord):
                if intended.state is EffectState.SUCCEEDED:
                    return self._done_before(intended)
                seen, recorded = self._doubts.settle(intended, request)
                if recorded is None:
                    continue
                request = recorded
                intended = self._intend(request, seen)
                if isinstance(intended, EffectRecord):
                    continue
            try:
                return self._act(request, intended)
            except _Expired:
                seen = intended.intent_no
            except Exception as error:
                failures += 1
                seen = self._failed(error, intended, failures, outer)

    def _intend(self, request: Request, seen: int) -> OpenIntent | EffectRecord:
        """Write the intent; an ``EffectRecord``: the row does not allow one."""
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
                return OpenIntent(self._effect, answer.intent_id, answer.intent_no, answer.repeat, began)
            if isinstance(answer, AlreadyThere):
                return answer.found
            if isinstance(answer, FenceMoved):
                session.gate.supersede("a later attempt of this task took over")
            elif isinstance(answer, LeaseLapsed) and not session.heartbeat.beat():
                raise AttemptSuperseded("a later attempt of this task took over")

    def _act(self, request: Request, intended: OpenIntent) -> Any:
        session, name, timeout = self._session, self._effect.name, self._options.timeout
        clock = session.services.clock
        ctx = EffectContext(
            idempotency_key=idempotency_key(self._effect, intended.repeat),
            key=self._effect.key,
            attempt=session.taken.number,
            fence=session.taken.lease.fence,
            deadline=timeout,
        )
        failpoint("before_act", name)
        with session.gate.hand(name):
            if clock.monotonic() - intended.began > session.services.settings.start_within:
                session.recorder.settle(intended.intent_id, "not_applied", None)
                raise _Expired
            try:
                value = session.deadlines.run(
                    lambda: request.call(ctx),
                    timeout,
                    lambda: EffectTimeoutError(f"effect '{name}' did not end within {timeout:g} s"),
                )
            except FlowSignal:
                raise
            except BaseException as error:
                if not isinstance(error, Exception):
                    # The process is told to end in mid-call: nobody knows what the target did.
                    self._doubts.mark(intended.intent_id)
                raise
            failpoint("after_act", name)
            return self._record(value, intended)

    def _record(self, value: Any, intended: OpenIntent) -> Any:
        session, name = self._session, self._effect.name
        secret = session.payloads.secret_in(value)
        if secret:
            session.services.host.log(
                f"the result of effect '{name}' holds a secret at {secret}: the effect is recorded as done, its "
                f"result is not",
                warning=True,
            )
        try:
            stored = session.payloads.save(None if secret else value, name, self._as_type)
        except PayloadEncodeError as error:
            # The effect happened: that must be recorded, whatever its result is.
            session.services.host.log(
                f"the result of effect '{name}' can't be stored ({error}): its text is kept instead", warning=True
            )
            stored = session.payloads.save(repr(value), name, str)
        failpoint("before_record", name)
        session.recorder.settle(intended.intent_id, "succeeded", stored)
        failpoint("after_record", name)
        session.recorder.note("effect", {"name": name, "key": self._effect.key, "outcome": "succeeded"})
        session.journal.effect(name, self._shown_key, "done")
        return value if secret else session.payloads.load(stored, name, self._as_type)

    def _failed(self, error: Exception, intended: OpenIntent, failures: int, outer: BaseException | None) -> int:
        """Settle or doubt an intent whose call raised; return the intent number to go on from, or raise."""
        session, name = self._session, self._effect.name
        seen = classify(error, handling=outer)
        error.add_note(f"aiflow: in effect '{name}', {session.where}: {seen.kind.replace('_', ' ')} ({seen.why})")
        if seen.kind == "unknown":
            self._doubts.after_unknown(intended, error)
        else:
            session.recorder.settle(intended.intent_id, "not_applied", None)
        if failures > self._options.retries:
            raise error
        pause = seen.retry_after if seen.retry_after is not None else FIRST_PAUSE * 2 ** (failures - 1)
        if pause > LONGEST_WAIT:
            if seen.retry_after is None:
                pause = LONGEST_WAIT
            else:
                raise AttemptParked(pause, f"effect '{name}' is to be tried again in {pause:.0f} s") from error
        session.services.clock.wait(pause)
        return intended.intent_no

    def _done_before(self, found: EffectRecord) -> Any:
        session = self._session
        note = judge(session, found, self._request, self._options)
        result = found.result
        value = None if result is None else session.payloads.load(result, self._effect.name, self._as_type)
        ours = found.execution == session.attempt.execution
        by = "" if ours else f" by run {found.execution.run_id}"
        session.journal.effect(
            self._effect.name,
            self._shown_key,
            f"done before{by}: not sent again{note}",
            warning=bool(note) or found.execution.run_id != session.attempt.execution.run_id,
        )
        return value

    @property
    def _shown_key(self) -> str:
        return "(no key)" if self._effect.key == OWN_KEY else self._effect.key


class Names:
    """
    Give effects their identity and see that a key is there where it must be.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._used: set[str] = set()

    def identify(self, name: str, options: EffectOptions) -> EffectId:
        """
        Find an effect's identity.

        :param name: the effect's name.
        :param options: checked.
        :raises EffectKeyRequiredError: where the call needs a business key; nothing was sent for it.
        """
        attempt, generation = self._session.attempt, self._session.taken.generation
        default: Scope = "generation" if attempt.setup_or_teardown else "dag"
        scope = options.scope or default
        if options.key is not None:
            return EffectId(effect_namespace(scope, attempt.execution, generation), name, options.key)
        if attempt.mapped or attempt.execution.map_index != UNMAPPED:
            raise EffectKeyRequiredError(
                f"effect '{name}' is called in a mapped task: give it key= with the business key of its item (a map "
                f"index is no key: a shifted list would give one item another's past). Nothing was sent for this call"
            )
        if current_unit().path:
            raise EffectKeyRequiredError(
                f"effect '{name}' is called inside a map or a step: give each call its own key=. "
                f"Nothing was sent for this call"
            )
        if name in self._used:
            raise EffectKeyRequiredError(
                f"effect '{name}' is called a second time in this task: give each call its own key=. "
                f"Nothing was sent for this call"
            )
        self._used.add(name)
        namespace = own_namespace(attempt.execution)
        if scope == "generation":
            namespace = f"{namespace}/{generation}"
        return EffectId(namespace, name, OWN_KEY)
