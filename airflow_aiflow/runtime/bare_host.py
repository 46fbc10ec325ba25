"""What a host is that has nothing of Airflow's at hand: a person's shell, or a thread of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.inbox import Word
from airflow_aiflow.exceptions import AiflowConfigError, AttemptParked, AttemptSuperseded, EffectError

if TYPE_CHECKING:
    from airflow_aiflow.runtime.session import Services


class BareHost:
    """Run an attempt that nobody starts again; where its log goes and how it ends a subclass says."""

    def is_secret(self, text: str) -> bool:
        """Know no secrets: there is no list of them here."""
        return False

    def secret_words(self) -> Sequence[str]:
        """Know none: no step runs here."""
        return ()

    def redact(self, text: str) -> str:
        """Mask nothing, for the same reason."""
        return text

    def ending(self, error: BaseException) -> ExecutionState | None:
        """Read an error as a failure, all else as the end of the process."""
        return ExecutionState.FAILED if isinstance(error, Exception) else None

    def database(self, conn_id: str) -> str:
        """Refuse: no transaction runs here."""
        raise AiflowConfigError(f"an undo by a person has no connection '{conn_id}'")

    @property
    def may_come_back(self) -> bool:
        """Say no: nobody would start it again."""
        return False


def taken_back(
    services: Services, effect: EffectRecord, number: int, compensate: Callable[..., Any] | None, by: str, reason: str
) -> Word:
    """
    Take an effect back, or note that a person did.

    :param services: what an attempt works with.
    :param effect: as it was looked at.
    :param number: of the call that succeeded.
    :param compensate: takes it back; ``None``: it was done by hand.
    :param by: who says so.
    :param reason: why.
    :return: whether it is taken back by this word, or was before; else why not.
    """
    from airflow_aiflow.runtime.undo_by_person import PersonsUndo, undo_by_person

    try:
        return undo_by_person(services, effect, PersonsUndo(number, compensate, by, reason))
    except (EffectError, AttemptSuperseded, AttemptParked) as stopped:
        return Word(False, str(stopped))
