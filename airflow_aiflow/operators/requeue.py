"""``RequeueRunsOperator``: one pass of recovery. It looks again on fresh evidence, acts, and tells of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_aiflow.exceptions import AirflowRefusedError, AirflowUnavailableError, LedgerUnavailableError

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context

    from airflow_aiflow.hooks.recovering import Doors
    from airflow_aiflow.recovery.deeds import Deed


class RequeueRunsOperator(BaseOperator):
    """
    Make stalled runs runnable again, give up what dies each time, and tell somebody, once an incident.

    It may be killed at any moment, run twice and run beside another one: every deed is marked in the ledger first.
    Where the ledger or Airflow can't be asked the pass is skipped with a warning, and the next one makes up for it.

    :param notify: Airflow's notifiers, or ``AiflowNotifier``s, which carry the alerts; the context has ``incident``.
    :param policy: words of the recovery policy that differ from the deployment's; see ``recovery_dag``.
    :param ledger_conn_id: connection of the ledger; ``None``: the deployment's.
    :param api_conn_id: connection of Airflow's REST API; ``None``: the deployment's.
    """

    def __init__(
        self,
        *,
        notify: Sequence[BaseNotifier] = (),
        policy: Mapping[str, Any] | None = None,
        ledger_conn_id: str | None = None,
        api_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        from airflow_aiflow.config import checked_overrides

        super().__init__(**kwargs)
        self.notify = list(notify)
        self.policy = checked_overrides(policy or {})
        self.ledger_conn_id = ledger_conn_id
        self.api_conn_id = api_conn_id

    def execute(self, context: Context) -> None:
        """
        Make one pass.

        :param context: Airflow's.
        """
        from airflow_aiflow.hooks.recovering import open_doors
        from airflow_aiflow.recovery.watch import passes

        with closing(open_doors(self.ledger_conn_id, self.api_conn_id)) as doors:
            try:
                self._act(doors)
            except (LedgerUnavailableError, AirflowUnavailableError, AirflowRefusedError) as error:
                if not passes(error):
                    raise
                self.log.warning("aiflow: this pass is broken off, the next one goes on: %s", error)
            self._tell(doors, context)

    def _act(self, doors: Doors) -> None:
        """Tell of each deed when it is done: a trouble on the way does not take back what was."""
        for deed in self._deeds(doors):
            word = type(deed.done).__name__.lower()
            self.log.warning("aiflow: %s: %s: %s", word, deed.incident.execution, deed.done.why)
            count(deed)
        count_doubts(doors.doubts.number())

    def _deeds(self, doors: Doors) -> Iterator[Deed]:
        from airflow_aiflow.config import recovery_policy
        from airflow_aiflow.recovery.below import make_up
        from airflow_aiflow.recovery.deeds import Deeds
        from airflow_aiflow.recovery.one_pass import look, note
        from airflow_aiflow.recovery.outside import Outside

        policy = recovery_policy(self.policy)
        found = look(doors.ledger, doors.api, policy)
        self.log.info("aiflow: %d stalled, %d left alone", len(found.decided), len(found.notes))
        note(doors.ledger, found.notes)
        yield from Deeds(doors.ledger, doors.api, dead=found.dead).each(found.deeds)
        make_up(doors.ledger, doors.api)
        outside = Outside(doors.ledger, doors.api, policy)
        yield from outside.start(outside.not_started())

    def _tell(self, doors: Doors, context: Context) -> None:
        if not self.notify:
            return
        from airflow.sdk import conf

        from airflow_aiflow.notifications.alert import task_link
        from airflow_aiflow.notifications.telling import tell_doubts, tell_incidents

        link = task_link(str(conf.get("api", "base_url", fallback="") or ""))
        try:
            told = tell_incidents(doors.ledger, self.notify, context, link=link)
            told += tell_doubts(doors.doubts, self.notify, context, link=link)
        except LedgerUnavailableError as error:
            self.log.warning("aiflow: the next pass tells what is to be told: %s", error)
            return
        self.log.info("aiflow: %d alerts", told)


def count(deed: Deed) -> None:
    """
    Send a deed's figures; what Airflow refused counts once it is done.

    :param deed: one of this pass.
    """
    from airflow_aiflow.durable.stall import Leave, Requeue
    from airflow_aiflow.hooks.recovery_stats import RecoveryStats

    if isinstance(deed.done, Leave):
        return
    stats = RecoveryStats()
    stats.stalled(deed.incident.kind, type(deed.done).__name__.lower(), deed.incident.detected_after)
    if isinstance(deed.done, Requeue):
        stats.recovered(deed.incident.kind)


def count_doubts(number: int) -> None:
    """
    Send how many effects are in doubt.

    :param number: at the end of this pass.
    """
    from airflow_aiflow.hooks.recovery_stats import RecoveryStats

    RecoveryStats().in_doubt(number)
