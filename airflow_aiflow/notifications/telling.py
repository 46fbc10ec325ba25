"""
Tell of incidents and doubts, each once.

What was told is noted after a notifier took it: a process that is killed between the two tells it again, and one that
is killed before loses nothing. A notifier that fails does not keep the others from hearing; where all of them fail, the
next pass tries again.

Not covered: two passes that tell at the same moment tell the same twice. A note beforehand would lose what is told by
a process that dies before it could.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.stall import Incident
from airflow_aiflow.notifications.alert import Alert, of_doubt, of_incident
from airflow_aiflow.notifications.notifier import INCIDENT, as_alerts

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context

log = logging.getLogger(__name__)

#: Alerts of one pass: where a node died with hundreds of tasks, the rest is told by the next ones.
AT_ONCE = 100

#: Seconds for which nobody must have been at work on a doubt before it is told: an attempt that comes meanwhile may
#: settle it by asking the target.
GRACE = 60.0


class Incidents(Protocol):
    """Know of incidents; a recovery ledger does."""

    def unalerted(self, limit: int = AT_ONCE) -> Sequence[Incident]:
        """List incidents that somebody should hear of and nobody was told, the oldest first."""

    def alerted(self, numbers: Iterable[int]) -> None:
        """Note that these incidents were told."""


class Doubts(Protocol):
    """Know of effects in doubt."""

    def untold(self, *, grace: float, limit: int) -> Sequence[EffectRecord]:
        """
        List effects in doubt that nobody was told of, the oldest first.

        :param grace: seconds for which nobody must have been at work on them.
        :param limit: at most so many.
        """

    def told(self, numbers: Iterable[int]) -> None:
        """Note that these doubts were told, by the numbers of their intents."""


def tell_incidents(
    ledger: Incidents,
    notify: Sequence[BaseNotifier],
    context: Context,
    *,
    link: Callable[[ExecutionId], str] = lambda execution: "",
) -> int:
    """
    Tell of the incidents that nobody was told of yet.

    :param ledger: knows them.
    :param notify: who carries the messages; none: nothing is told, and nothing noted.
    :param context: Airflow's, of the task that tells.
    :param link: gives a task's address in Airflow.
    :return: how many were told.
    """
    if not notify:
        return 0
    alerts = [of_incident(one, link) for one in ledger.unalerted(AT_ONCE)]
    return _tell(alerts, notify, context, ledger.alerted)


def tell_doubts(
    ledger: Doubts,
    notify: Sequence[BaseNotifier],
    context: Context,
    *,
    link: Callable[[ExecutionId], str] = lambda execution: "",
) -> int:
    """
    Tell of the effects in doubt that nobody was told of yet.

    :param ledger: knows them.
    :param notify: who carries the messages; none: nothing is told, and nothing noted.
    :param context: Airflow's, of the task that tells.
    :param link: gives a task's address in Airflow.
    :return: how many were told.
    """
    if not notify:
        return 0
    alerts = [of_doubt(one, link) for one in ledger.untold(grace=GRACE, limit=AT_ONCE)]
    return _tell(alerts, notify, context, ledger.told)


def _tell(
    alerts: Iterable[Alert],
    notify: Sequence[BaseNotifier],
    context: Context,
    note: Callable[[Iterable[int]], None],
) -> int:
    told = 0
    for alert in alerts:
        carried = [_carried(alert, one, context) for one in notify]
        if any(carried):
            note([alert.number])
            told += 1
    return told


def _carried(alert: Alert, notifier: BaseNotifier, context: Context) -> bool:
    words: dict[str, Any] = {**context, INCIDENT: alert}
    try:
        as_alerts(notifier)(cast("Context", words))
    except Exception as error:  # a notifier may raise anything, and the others must still hear
        log.error("aiflow: %s could not tell of #%d (%s)", type(notifier).__name__, alert.number, type(error).__name__)
        return False
    return True
