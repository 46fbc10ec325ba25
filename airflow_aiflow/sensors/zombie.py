"""``ZombieRunSensor``: wait until a stalled run wants a deed. It finds; ``RequeueRunsOperator`` acts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.triggers.base import StartTriggerArgs

if TYPE_CHECKING:
    from airflow.sdk import Context

#: An hour: runs of the recovery DAG that find nothing are 24 a day.
LASTS = 3600.0

#: Seconds between two looks: a query with an index, far below what the ledger notices.
POLL_INTERVAL = 5.0

TRIGGER = "airflow_aiflow.triggers.zombie.ZombieRunTrigger"


class ZombieRunSensor(BaseSensorOperator):
    """
    Wait until a stalled run wants a deed, or somebody is to be told of one.

    Deferrable unless it is told otherwise: it begins and ends in the triggerer and takes no worker's slot. Without a
    triggerer, ``deferrable=False`` with ``mode="reschedule"`` gives the slot back between two looks and ``mode="poke"``
    keeps it. What it leaves alone it notes in the ledger, with the time at which to look again.

    :param poll_interval: seconds between two looks; ``timedelta`` or a number.
    :param lasts: seconds after which it ends without a find.
    :param deferrable: whether the triggerer does the waiting.
    :param policy: words of the recovery policy that differ from the deployment's; see ``recovery_dag``.
    :param tells: whether what comes after it tells somebody of incidents.
    :param ledger_conn_id: connection of the ledger; ``None``: the deployment's.
    :param api_conn_id: connection of Airflow's REST API; ``None``: the deployment's.
    """

    def __init__(
        self,
        *,
        poll_interval: timedelta | float = POLL_INTERVAL,
        lasts: timedelta | float = LASTS,
        deferrable: bool = True,
        policy: Mapping[str, Any] | None = None,
        tells: bool = False,
        ledger_conn_id: str | None = None,
        api_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        from airflow_aiflow.config import checked_overrides

        kwargs.setdefault("poke_interval", poll_interval)
        kwargs.setdefault("timeout", lasts)
        # In the other modes too, the end of the time is no failure.
        kwargs.setdefault("soft_fail", True)
        super().__init__(**kwargs)
        self.poll_interval = _seconds(poll_interval)
        self.lasts = _seconds(lasts)
        self.deferrable = deferrable
        self.policy = checked_overrides(policy or {})
        self.tells = tells
        self.ledger_conn_id = ledger_conn_id
        self.api_conn_id = api_conn_id
        self.start_from_trigger = deferrable
        self.start_trigger_args = StartTriggerArgs(TRIGGER, "execute_complete", self._trigger_kwargs())

    def execute(self, context: Context) -> Any:
        """
        Wait.

        :param context: Airflow's.
        """
        if self.deferrable:
            from airflow_aiflow.triggers.zombie import ZombieRunTrigger

            # Only where the scheduler could not start the trigger itself.
            self.defer(trigger=ZombieRunTrigger(**self._trigger_kwargs()), method_name="execute_complete")
        return super().execute(context)

    def execute_complete(self, context: Context, event: Any = None) -> None:
        """
        Take a trigger's event; ours ends the task by itself.

        :param context: Airflow's.
        :param event: the trigger's.
        """

    def poke(self, context: Context) -> bool:
        """
        Look once.

        :param context: Airflow's.
        :return: whether something has to be done.
        """
        from airflow_aiflow.config import recovery_policy
        from airflow_aiflow.hooks.recovering import open_doors
        from airflow_aiflow.recovery.watch import Watch, somebody_waits

        with closing(open_doors(self.ledger_conn_id, self.api_conn_id)) as doors:
            untold = partial(somebody_waits, doors.ledger, doors.doubts) if self.tells else None
            policy = recovery_policy(self.policy)
            watch = Watch(doors.ledger, doors.api, policy, untold, at_once=True, submissions=doors.submissions)
            found = watch.finds()
        if found is not None:
            self.log.info("aiflow: %s", found)
        return found is not None

    def _trigger_kwargs(self) -> dict[str, Any]:
        names = ("poll_interval", "lasts", "policy", "tells", "ledger_conn_id", "api_conn_id")
        return {name: getattr(self, name) for name in names}


def _seconds(value: timedelta | float) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
