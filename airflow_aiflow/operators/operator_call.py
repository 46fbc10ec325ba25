"""
An Airflow operator's work as the function of an effect.

The request is what the operator was told: its templated fields, and what a preset adds. A call after doubt puts the
recorded ones back. What comes out beside the return value, XComs pushed by key and a skip, is part of the outcome, so
that a replay gives it again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.exceptions import PayloadEncodeError, StepInputError
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.visits import BEGIN, Left, Visit

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_aiflow.durable.effect_context import EffectContext
    from airflow_aiflow.runtime.session import Session

#: Marks an outcome that holds more than what the operator returned. Any other value is a returned one, or the result
#: that a person or ``reconcile`` gave.
MARK = "aiflow_once"


@dataclass(slots=True)
class OperatorOutcome:
    """Hold what an operator's work gave."""

    returned: Any = None
    #: Key and value, in order.
    pushed: list[tuple[str, Any]] = field(default_factory=list)
    skipped: bool = False
    reason: str | None = None
    #: What is skipped below it, as Airflow names it; ``None``: the task itself is skipped, or nothing.
    skips: list[Any] | None = None

    def packed(self) -> Any:
        """Give plain data; a mere return value stays as it is, so that people read it in the ledger."""
        if not self.pushed and not self.skipped and not (isinstance(self.returned, dict) and MARK in self.returned):
            return self.returned
        return {
            MARK: 1,
            "returned": self.returned,
            "pushed": [list(one) for one in self.pushed],
            "skipped": self.skipped,
            "reason": self.reason,
            "skips": self.skips,
        }

    @classmethod
    def read(cls, recorded: Any) -> OperatorOutcome:
        """
        Read a recorded result.

        :param recorded: what ``packed`` gave, or any other result.
        """
        if not (isinstance(recorded, dict) and recorded.get(MARK) == 1):
            return cls(returned=recorded)
        pushed = [(key, value) for key, value in recorded["pushed"]]
        return cls(recorded["returned"], pushed, recorded["skipped"], recorded["reason"], recorded["skips"])

    def raise_skip(self) -> None:
        """Skip as the operator did."""
        from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

        if self.skips is not None:
            raise DownstreamTasksSkipped(tasks=self.skips)  # type: ignore[no-untyped-call]
        if self.skipped:
            raise AirflowSkipException(*([] if self.reason is None else [self.reason]))


def plain_fields(
    operator: Any, names: Collection[str], session: Session, identity: Collection[str] | None
) -> dict[str, Any]:
    """
    Read what the operator was told.

    :param operator: with its templates rendered.
    :param names: of its attributes.
    :param session: tells what is secret.
    :param identity: those that count; ``None``: all. Of the others, what has no plain form or holds a secret is left
        out: nothing is compared over it, and a later call takes it from the operator as it is then.
    """
    found = {}
    for name in names:
        value = getattr(operator, name, None)
        if identity is None or name in identity or _can_be_kept(value, session):
            found[name] = value
    return found


def _can_be_kept(value: Any, session: Session) -> bool:
    try:
        fingerprint(value, secrets=session.secrets)
        encode(value)
    except (StepInputError, PayloadEncodeError):
        return False
    return session.payloads.secret_in_clear(value) is None


class OperatorCall:
    """
    Run an operator's own code and catch all that it gives.

    :param operator: of a wrapped class.
    :param ti: the running task instance.
    :param session: the attempt at work.
    :param visit: how this process came here.
    :param go_on: runs the operator's own code: its ``execute``, or the method by which it comes back.
    :param alone: hands the idempotency key over and gives the context in which the operator's clients repeat nothing.
    :param on_trigger: triggers a DAG run, where the operator asks Airflow to.
    """

    def __init__(
        self,
        operator: Any,
        ti: Any,
        session: Session,
        visit: Visit,
        go_on: Callable[[], Any],
        *,
        alone: Callable[[EffectContext | None], AbstractContextManager[None]],
        on_trigger: Callable[[Any], None],
    ) -> None:
        self._operator = operator
        self._ti = ti
        self._session = session
        self._visit = visit
        self._go_on = go_on
        self._alone = alone
        self._on_trigger = on_trigger

    def as_function(self, fields: Collection[str], *, takes_ctx: bool) -> Callable[..., Any]:
        """
        Give a function of the operator's fields, named as its class.

        Its name and signature are what people read of the request, so it says what it does though it is a closure.

        :param fields: names of its parameters, all by keyword.
        :param takes_ctx: whether the target is given our idempotency key.
        """

        def execute(ctx: EffectContext | None = None, /, **told: Any) -> Any:
            for name, value in told.items():
                setattr(self._operator, name, value)
            with self._alone(ctx):
                return self._run()

        first = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_ONLY)] if takes_ctx else []
        rest = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in fields]
        named: Any = execute
        named.__signature__ = inspect.Signature([*first, *rest])
        named.__annotations__ = {}
        named.__module__ = type(self._operator).__module__
        named.__name__ = named.__qualname__ = type(self._operator).__name__
        return execute

    def _run(self) -> Any:
        from airflow.sdk import exceptions

        outcome = OperatorOutcome(pushed=[(key, value) for kept in self._visit.kept for key, value in kept])
        with _pushes(self._ti, outcome.pushed):
            try:
                outcome.returned = self._storable(author(self._go_on))
            except exceptions.DagRunTriggerException as wanted:
                self._on_trigger(wanted)
            except exceptions.AirflowSkipException as skip:
                outcome.skipped, outcome.reason = True, str(skip.args[0]) if skip.args else None
            except exceptions.DownstreamTasksSkipped as skip:
                outcome.skipped, outcome.skips = True, list(skip.tasks)
            except exceptions.AirflowRescheduleException as signal:
                away = (signal.reschedule_date - datetime.now(UTC)).total_seconds()
                return Left(signal, BEGIN, self._kept(outcome), away)
            except (exceptions.TaskDeferred, exceptions.TaskAwaitingInput) as signal:
                limit = signal.timeout or self._operator.execution_timeout
                away = None if limit is None else limit.total_seconds()
                return Left(signal, signal.method_name, self._kept(outcome), away)
        outcome.pushed = self._kept(outcome)
        return outcome.packed()

    def _kept(self, outcome: OperatorOutcome) -> list[Any]:
        """Leave out what can't be recorded: it was pushed, and a replay is without it."""
        kept = []
        for key, value in outcome.pushed:
            if _can_be_kept(value, self._session):
                kept.append((key, value))
            else:
                self._session.services.host.log(
                    f"aiflow: the XCom {key!r} holds a secret or can't be stored: a replay of this task is without it",
                    warning=True,
                )
        return kept

    def _storable(self, value: Any) -> Any:
        """Keep the text of what can't be stored, as for every effect, and the XComs beside it."""
        try:
            encode(value)
        except PayloadEncodeError as error:
            self._session.services.host.log(
                f"aiflow: what the operator returned can't be stored ({error}): its text is kept instead", warning=True
            )
            return self._session.payloads.as_text(value)
        return value


@contextmanager
def _pushes(ti: Any, seen: list[tuple[str, Any]]) -> Iterator[None]:
    """Note what the operator pushes by key; on the instance, for the class is Airflow's."""
    original = ti.xcom_push

    def xcom_push(key: str, value: Any, *args: Any, **kwargs: Any) -> None:
        original(key, value, *args, **kwargs)
        seen.append((key, value))

    object.__setattr__(ti, "xcom_push", xcom_push)
    try:
        yield
    finally:
        object.__delattr__(ti, "xcom_push")
