"""Note that a person has taken an effect back by hand: by an attempt of its own, in a thread of this server."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.inbox import Word
from airflow_aiflow.exceptions import AiflowConfigError, AttemptParked, AttemptSuperseded, EffectError

if TYPE_CHECKING:
    from airflow_aiflow.runtime.session import Services

log = logging.getLogger(__name__)


class ServerHost:
    """Be what runs the attempt: a server's thread, which must outlive it."""

    def log(self, line: str, *, warning: bool = False) -> None:
        """Write a line."""
        log.log(logging.WARNING if warning else logging.INFO, "%s", line)

    def is_secret(self, text: str) -> bool:
        """Know no secrets: nothing is sent, and nothing is given."""
        return False

    def redact(self, text: str) -> str:
        """Mask nothing, for the same reason."""
        return text

    def secret_words(self) -> Sequence[str]:
        """Know none: no step runs here."""
        return ()

    def ending(self, error: BaseException) -> ExecutionState | None:
        """Read an error as a failure."""
        return ExecutionState.FAILED if isinstance(error, Exception) else None

    def database(self, conn_id: str) -> str:
        """Refuse: no transaction runs here."""
        raise AiflowConfigError(f"an undo by hand has no connection '{conn_id}'")

    @property
    def may_come_back(self) -> bool:
        """Say no: nobody would start it again."""
        return False

    def end_process(self, why: str, *, superseded: bool = True, back_in: float | None = None) -> NoReturn:
        """End the watching thread alone: the server goes on, and the attempt learns it at its next write."""
        log.warning("aiflow: %s", why)
        raise AttemptSuperseded(why)


def undo_by_hand(services: Services, effect: EffectRecord, number: int, by: str, reason: str) -> Word:
    """
    Note that an effect was taken back.

    :param services: what an attempt works with.
    :param effect: as it was looked at.
    :param number: of the call that succeeded.
    :param by: who says so.
    :param reason: why.
    :return: whether it is taken back by this word, or was before; else why not.
    """
    from airflow_aiflow.runtime.undo_by_person import PersonsUndo, undo_by_person

    try:
        return undo_by_person(services, effect, PersonsUndo(number, None, by, reason))
    except (EffectError, AttemptSuperseded, AttemptParked) as stopped:
        return Word(False, str(stopped))
