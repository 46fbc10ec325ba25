"""
Ask the Airflow that this code runs in, by its own REST API and with the rights of the user who asks us.

The request stays inside of the process: no address has to be known, and Airflow checks and logs it as any other.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import anyio.from_thread
import httpx
from fastapi import Request

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import Inbox
from airflow_aiflow.exceptions import AiflowError, AirflowRefusedError
from airflow_aiflow.hooks.waiting_task import let_go
from airflow_aiflow.runtime.clock import SystemClock

#: Where Airflow keeps the app that its API server serves.
SERVED = "airflow.api_fastapi.main"

#: Headers by which a user is known.
CREDENTIALS = ("authorization", "cookie")

#: Seconds that an answer may take.
TIMEOUT = 30.0

log = logging.getLogger(__name__)


def served() -> Any:
    """Give the app that this process serves; ``None``: it is no API server of Airflow's."""
    return getattr(sys.modules.get(SERVED), "app", None)


class OwnAirflow:
    """
    Ask as a user. To be used in a worker thread of the server alone.

    :param app: the server's.
    :param headers: of the user's request.
    """

    def __init__(self, app: Any, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = {name: headers[name] for name in CREDENTIALS if name in headers}

    def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """
        Make a request.

        :param path: what follows ``/api/v2``.
        :raises AirflowRefusedError: if Airflow refused.
        """
        answer: httpx.Response = anyio.from_thread.run(self._send, method, f"/api/v2{path}", params, body)
        if answer.status_code >= 300:
            raise AirflowRefusedError(method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def _send(self, method: str, path: str, params: Mapping[str, Any] | None, body: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=self._headers, timeout=TIMEOUT
        ) as client:
            return await client.request(method, path, params=params, json=body)


def tell_later(
    request: Request, inbox: Inbox, execution: ExecutionId, parked_at: datetime | None, said: str
) -> Callable[[], None] | None:
    """
    Prepare to let a waiting task go on, after the answer has been sent: Airflow takes it some seconds after parking.

    :param request: the user's.
    :param inbox: the ledger's.
    :param execution: whose answer has come.
    :param parked_at: when it asked.
    :param said: the word.
    :return: what does so; ``None``: this is no API server, and the task looks by itself.
    """
    app = served()
    if app is None:
        return None
    airflow = OwnAirflow(app, request.headers)

    def tell() -> None:
        try:
            told = let_go(airflow, inbox, execution, parked_at=parked_at, option=said, clock=SystemClock())
            log.info("aiflow: %s: %s", execution, told.sentence)
        except (AiflowError, httpx.HTTPError) as error:
            # The word stands, and the task looks into the inbox by itself.
            log.warning("aiflow: Airflow can't be told that %s may go on: %s", execution, error)

    return tell
