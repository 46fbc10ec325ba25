"""Watch for stalled runs out of Airflow's triggerer. Thin: what it does stands in ``recovery`` and runs in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

if TYPE_CHECKING:
    from airflow_aiflow.hooks.recovering import Doors
    from airflow_aiflow.recovery.watch import Watch

#: Seconds between two looks at the processes of this machine, which cost no query.
TICK = 1.0

#: Seconds for which a watch that can't work holds its task before it fails it: a run of a DAG that is always run again
#: would else fail some times a second.
BEFORE_FAILING = 60.0

#: When this process last looked at what is looked at now and then, by ledger and Airflow: watches come and go.
_looked: dict[tuple[str | None, str | None], dict[str, float]] = {}


class ZombieRunTrigger(BaseTrigger):
    """
    End the task, well, as soon as a stalled run wants a deed, or when the time is up.

    No worker is started for that: the event is the task's end.

    :param poll_interval: seconds between two looks at the ledger.
    :param lasts: seconds after which the task ends without a find.
    :param policy: words of the recovery policy that differ from the deployment's.
    :param tells: whether there is somebody to tell of incidents.
    :param ledger_conn_id: connection of the ledger; ``None``: the deployment's.
    :param api_conn_id: connection of Airflow's REST API; ``None``: the deployment's.
    """

    def __init__(
        self,
        poll_interval: float = 5.0,
        lasts: float = 3600.0,
        policy: Mapping[str, Any] | None = None,
        tells: bool = False,
        ledger_conn_id: str | None = None,
        api_conn_id: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.poll_interval = poll_interval
        self.lasts = lasts
        self.policy = dict(policy or {})
        self.tells = tells
        self.ledger_conn_id = ledger_conn_id
        self.api_conn_id = api_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Give the class's path and the arguments to make it again."""
        names = ("poll_interval", "lasts", "policy", "tells", "ledger_conn_id", "api_conn_id")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch."""
        from airflow_aiflow.hooks.recovering import await_doors

        try:
            doors = await await_doors(self.ledger_conn_id, self.api_conn_id)
            try:
                await self._watch(await asyncio.to_thread(self._open, doors))
            finally:
                await asyncio.to_thread(doors.close)
        except Exception as error:  # whatever it is, it must not come again and again without a pause
            self.log.error("aiflow: no stalled run can be found: %s", error)
            await asyncio.sleep(BEFORE_FAILING)
            raise
        yield TaskSuccessEvent()

    async def _watch(self, watch: Watch) -> None:
        """Look until something is found or the time is up."""
        ends = time.monotonic() + self.lasts
        while time.monotonic() < ends:
            found = await asyncio.to_thread(watch.finds)
            if found is not None:
                self.log.info("aiflow: %s", found)
                return
            await self._pause(watch)
        self.log.info("aiflow: nothing has stalled for %.0f s; the next run goes on looking", self.lasts)

    async def _pause(self, watch: Watch) -> None:
        ends = time.monotonic() + self.poll_interval
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(TICK, left))
            if await asyncio.to_thread(watch.somebody_died):
                return

    def _open(self, doors: Doors) -> Watch:
        from airflow_aiflow.config import recovery_policy
        from airflow_aiflow.recovery.watch import Watch, somebody_waits

        untold = partial(somebody_waits, doors.ledger, doors.doubts) if self.tells else None
        looked = _looked.setdefault((self.ledger_conn_id, self.api_conn_id), {})
        policy = recovery_policy(self.policy)
        return Watch(doors.ledger, doors.api, policy, untold, submissions=doors.submissions, looked=looked)
