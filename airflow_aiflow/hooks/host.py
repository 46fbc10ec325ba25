"""Be the host of a flow inside Airflow: the task log, the secrets masker, the end of a superseded process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.exceptions import (
    AttemptAsks,
    AttemptCancelled,
    AttemptParked,
    AttemptSuperseded,
    BudgetExceededError,
    EffectDeclinedError,
    EffectExpiredError,
    EffectInDoubtError,
    JobFailedError,
    QuestionTimeoutError,
)
from airflow_aiflow.hooks.supervisor import end_failed, end_superseded, hand_back, is_supervised

#: Returns of one try, for whatever reason, after which an attempt that hangs is not handed back but fails: what hangs
#: each time must come to an end. Recovery has its own count.
MOST_RETURNS = 3

#: After these, only a person's word or clear can help.
NEEDS_A_PERSON = (
    BudgetExceededError,
    EffectInDoubtError,
    EffectDeclinedError,
    EffectExpiredError,
    JobFailedError,
    QuestionTimeoutError,
)


def ends_retries(error: BaseException) -> bool:
    """
    Say whether Airflow makes no further try after an error, whatever tries are left.

    :param error: what came out of the author's code.
    """
    from airflow.sdk.exceptions import AirflowFailException

    return isinstance(error, (AirflowFailException, *NEEDS_A_PERSON))


class AirflowHost:
    """
    Implement the protocol ``Host`` for one task process.

    :param logger: where lines for the task log go.
    :param came_back: how often this try has come back already, by reschedules of any kind.
    """

    def __init__(self, logger: logging.Logger | None = None, *, came_back: int = 0) -> None:
        self._log = logger or logging.getLogger("airflow_aiflow.flow")
        self._supervisor = os.getppid()
        self._came_back = came_back
        self._superseded = threading.Event()

    @property
    def superseded(self) -> bool:
        """Whether a later attempt has taken over, so that nothing of this one may reach Airflow."""
        return self._superseded.is_set()

    def log(self, line: str, *, warning: bool = False) -> None:
        """Write one line of the task log."""
        self._log.log(logging.WARNING if warning else logging.INFO, "%s", line)

    def database(self, conn_id: str) -> str:
        """Give the address behind one of Airflow's connections of type ``postgres``."""
        from airflow_aiflow.hooks.aiflow import existing_connection
        from airflow_aiflow.hooks.conninfo import ledger_conninfo

        example = "postgres://USER:PASSWORD@HOST:5432/DATABASE"
        return ledger_conninfo(existing_connection(conn_id, "the target of a transaction", example))

    def is_secret(self, text: str) -> bool:
        """Say whether a text is, or holds, a secret that Airflow's masker knows."""
        return self.redact(text) != text

    def redact(self, text: str) -> str:
        """Mask the secrets that Airflow knows."""
        from airflow.sdk._shared.secrets_masker import redact

        return str(redact(text))

    def secret_words(self) -> Sequence[str]:
        """Give the words by which Airflow knows the name of a secret, those of ``sensitive_var_conn_names`` too."""
        from airflow.sdk._shared.secrets_masker import DEFAULT_SENSITIVE_FIELDS, _secrets_masker

        masker = _secrets_masker()
        if not masker.hide_sensitive_var_conn_fields:
            return ()
        return [*(masker.sensitive_variables_fields or DEFAULT_SENSITIVE_FIELDS)]

    def ending(self, error: BaseException) -> ExecutionState | None:
        """
        Read what an exception out of the author's code means for the execution.

        :return: ``succeeded`` for a skip, ``paused`` where Airflow calls the task again in the same try, ``None`` where
            the process was told to end; else ``failed``.
        """
        from airflow.sdk import exceptions

        if isinstance(error, KeyboardInterrupt | exceptions.AirflowTaskTerminated):
            return None
        if isinstance(error, exceptions.AirflowSkipException | exceptions.DownstreamTasksSkipped):
            return ExecutionState.SUCCEEDED
        if isinstance(error, exceptions.DagRunTriggerException):
            return ExecutionState.SUCCEEDED
        again = (exceptions.AirflowRescheduleException, exceptions.TaskDeferred, exceptions.TaskAwaitingInput)
        return ExecutionState.PAUSED if isinstance(error, again) else ExecutionState.FAILED

    @property
    def may_come_back(self) -> bool:
        """Whether this task process can be handed back as a reschedule: not again and again, for it may always hang."""
        return is_supervised() and self._came_back < MOST_RETURNS

    def end_process(self, why: str, *, superseded: bool = True, back_in: float | None = None) -> None:
        """
        End this task process; where a later attempt has taken over, without harming that one.

        Returns only where there is no task process to end: in ``dag.test()``, which runs in somebody's program.

        :param why: for the log.
        :param superseded: whether a later attempt is at work.
        :param back_in: seconds after which the current attempt comes back, with no retry burnt; ``None``: it fails.
        """
        if superseded:
            self._superseded.set()
        self.log(f"aiflow: {why}", warning=True)
        if is_supervised():
            if superseded:
                end_superseded(supervisor=self._supervisor)
            if back_in is not None:
                hand_back(datetime.now(UTC) + timedelta(seconds=back_in))
            end_failed()

    def end_if_superseded(self) -> None:
        """Answer the supervisor's wish to end at once, where this process only waits for that wish."""
        if self._superseded.is_set() and is_supervised():
            os._exit(0)


@contextmanager
def airflow_signals(
    host: AirflowHost, *, reschedule_delay: float, show: Callable[[AttemptAsks], BaseException] | None = None
) -> Iterator[None]:
    """
    Translate, once and here alone, what a flow says into what Airflow understands.

    Exceptions of the author's code pass unchanged, so that ``retry_policy=`` still matches them.

    :param host: the attempt's host.
    :param reschedule_delay: least seconds until a parked task comes back; a quicker one meets Airflow's late word on
        the parked process, which then fails the healthy task.
    :param show: turns a question to a person into what Airflow understands; ``None``: it waits in the inbox alone.
    """
    from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

    try:
        yield
    except AttemptParked as parked:
        if show is not None and isinstance(parked, AttemptAsks):
            raise show(parked) from None
        host.log(f"aiflow: {parked.why}; the slot goes back")
        back_at = datetime.now(UTC) + timedelta(seconds=max(parked.delay, reschedule_delay))
        raise AirflowRescheduleException(back_at) from None  # type: ignore[no-untyped-call]
    except AttemptCancelled as cancelled:
        host.log(f"aiflow: {cancelled}")
        raise AirflowFailException(str(cancelled)) from None
    except NEEDS_A_PERSON as waits:
        # A retry can't help before a person has decided, or clears the task, so none is burnt.
        raise AirflowFailException(str(waits)) from waits
    except AttemptSuperseded as superseded:
        host.end_process(str(superseded))
        raise AirflowFailException(str(superseded)) from superseded
    except BaseException as error:
        if host.superseded:
            host.end_process(f"a later attempt is at work, and this one ended with {type(error).__name__}")
        raise
