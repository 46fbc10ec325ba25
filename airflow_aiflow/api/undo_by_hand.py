"""Note that a person has taken an effect back by hand: by an attempt of its own, in a thread of this server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.inbox import Word
from airflow_aiflow.exceptions import AttemptSuperseded
from airflow_aiflow.runtime.bare_host import BareHost, taken_back

if TYPE_CHECKING:
    from airflow_aiflow.runtime.session import Services

log = logging.getLogger(__name__)


class ServerHost(BareHost):
    """Be what runs the attempt: a server's thread, which must outlive it."""

    def log(self, line: str, *, warning: bool = False) -> None:
        """Write a line."""
        log.log(logging.WARNING if warning else logging.INFO, "%s", line)

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
    return taken_back(services, effect, number, None, by, reason)
