"""
A small client of Airflow's REST API: for what no task may ask otherwise, and for commands that clear.

Airflow's own client would be a dependency of every worker for four requests. Nothing of Airflow is imported here: the
command line uses it where Airflow is another machine's. A login is changed for a token at the first request; a token
that was given is used as it is. Answers are never followed to another host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit

from airflow_aiflow.exceptions import AiflowConfigError, AirflowRefusedError, AirflowUnavailableError

if TYPE_CHECKING:
    import httpx

#: Seconds for one answer: the API lists a run of thousands of task instances in less.
TIMEOUT = 30.0

#: Task instances of one page: what the API gives at most, unless its ``[api] maximum_page_limit`` is lower.
PAGE = 100


class AsksAirflow(Protocol):
    """Ask Airflow's REST API: over the network, or inside of its own server."""

    def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """
        Make a request.

        :raises AirflowRefusedError: if the API refused.
        """


class AirflowApi:
    """
    Speak to one API server.

    :param base_url: its address, such as ``https://airflow.example.com``, a path included.
    :param login: a user's name; ``None``: ``password`` is a token.
    :param password: the password, or the token.
    """

    def __init__(self, base_url: str, *, login: str | None, password: str) -> None:
        import httpx

        self.base_url = base_url.rstrip("/")
        self._login = login
        self._password = password
        #: The server's clock at its last answer: ages are told by it, not by ours.
        self.told_at: datetime | None = None
        self._client = httpx.Client(timeout=TIMEOUT, trust_env=not _is_loopback(httpx.URL(self.base_url).host))
        if login is None:
            self._authorize(password)

    @property
    def credentials(self) -> dict[str, str]:
        """How another client of the same server signs in: a token, or login and password."""
        if self._login is None:
            return {"token": self._password}
        return {"login": self._login, "password": self._password}

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """
        Send a request to ``/api/v2``.

        :param method: HTTP method.
        :param path: what follows ``/api/v2``.
        :param params: query.
        :param body: JSON body.
        :return: the JSON answer.
        :raises AirflowUnavailableError: if there is no answer; a change may have been carried out.
        :raises AirflowRefusedError: if the API refused.
        """
        if "Authorization" not in self._client.headers:
            self._log_in()
        answer = self._send(method, f"/api/v2{path}", params, body)
        if answer.status_code == 401 and self._login is not None:
            self._log_in()  # the token has run out
            answer = self._send(method, f"/api/v2{path}", params, body)
        return self._read(method, path, answer)

    def task_instances(
        self,
        dag_id: str,
        run_id: str,
        *,
        task_id: str | None = None,
        map_indexes: Collection[int] = (),
        states: Collection[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """
        List the task instances of a run, page by page, those that were made first at the beginning.

        :param dag_id: the DAG; ``~`` with a run ``~``: of all of them.
        :param run_id: the run.
        :param task_id: of this task alone.
        :param map_indexes: with these alone.
        :param states: in one of these alone.
        """
        # In an order that does not move while we read.
        wanted: dict[str, Any] = {"order_by": "id", "state": list(states), "map_index": list(map_indexes)}
        if task_id is not None:
            wanted["task_id"] = task_id
        yield from self._pages(f"{run_path(dag_id, run_id)}/taskInstances", "task_instances", wanted)

    def running_runs(self) -> Iterator[dict[str, Any]]:
        """List the runs of all DAGs that run, page by page."""
        yield from self._pages("/dags/~/dagRuns", "dag_runs", {"order_by": "id", "state": ["running"]})

    def event_logs(self, events: Iterable[str], *, after: datetime, **wanted: str) -> Iterator[dict[str, Any]]:
        """
        List entries of the audit log, page by page.

        :param events: of these kinds alone.
        :param after: later than this, by Airflow's clock.
        :param wanted: further filters of the API, such as ``dag_id`` and ``run_id``.
        """
        params = {"order_by": "id", "included_events": list(events), "after": after.isoformat(), **wanted}
        yield from self._pages("/eventLogs", "event_logs", params)

    def _pages(self, path: str, name: str, wanted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            page = self.request("GET", path, params={"limit": PAGE, "offset": offset, **wanted})
            found = page[name]
            yield from found
            offset += len(found)
            if not found or offset >= (page["total_entries"] or 0):
                return

    def dag(self, dag_id: str) -> dict[str, Any]:
        """
        Give a DAG.

        :param dag_id: the DAG.
        """
        found: dict[str, Any] = self.request("GET", f"/dags/{_quoted(dag_id)}")
        return found

    def set_state(
        self, dag_id: str, run_id: str, instances: Iterable[tuple[str, int]], state: str
    ) -> list[dict[str, Any]]:
        """
        Set the state of task instances of one run, in one transaction.

        Airflow clears what failed below them in it, which raises the run's clear number, once at most.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param instances: (task id, map index).
        :param state: ``failed``, ``success`` or ``skipped``.
        :return: what was not done, and why: at the first of them Airflow leaves the rest as it is.
        """
        entities = [{"task_id": task_id, "map_index": index, "new_state": state} for task_id, index in instances]
        # One in the state already, or gone, must not keep the others from it.
        update = {"action": "update", "entities": entities, "action_on_non_existence": "skip"}
        answer = self.request("PATCH", f"{run_path(dag_id, run_id)}/taskInstances", body={"actions": [update]})
        errors: list[dict[str, Any]] = (answer.get("update") or {}).get("errors") or []
        return errors

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """
        Give a run.

        :param dag_id: the DAG.
        :param run_id: the run.
        """
        found: dict[str, Any] = self.request("GET", run_path(dag_id, run_id))
        return found

    def set_run_state(self, dag_id: str, run_id: str, state: str, *, by: str) -> None:
        """
        Set the state of a run, and of nothing in it.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param state: ``queued``: its tasks are scheduled again.
        :param by: which machinery does so: a word for the audit log.
        """
        self.request("PATCH", run_path(dag_id, run_id), params={"by": by}, body={"state": state})

    def clear(
        self,
        dag_id: str,
        run_id: str,
        *,
        task_ids: list[str | list[str | int]] | None,
        dry_run: bool,
        downstream: bool = False,
        upstream: bool = False,
        only_failed: bool = False,
        prevent_running_task: bool = False,
        by: str | None = None,
    ) -> list[dict[str, Any]]:
        """
        Clear task instances of a run, or say which ones would be.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param task_ids: task ids, or [task id, map index]; ``None``: the whole run.
        :param dry_run: change nothing.
        :param downstream: also what comes after them.
        :param upstream: also what comes before them.
        :param only_failed: leave alone what did not fail.
        :param prevent_running_task: refuse where one of them runs.
        :param by: which machinery clears, and why: a word for the audit log.
        :return: the task instances.
        :raises ValueError: if the selection is empty, which the API would take as the whole run.
        """
        if task_ids is not None and not task_ids:
            raise ValueError("no task to clear: an empty selection would clear the whole run")
        body = {
            "dry_run": dry_run,
            "dag_run_id": run_id,
            "include_downstream": downstream,
            "include_upstream": upstream,
            "only_failed": only_failed,
            "reset_dag_runs": True,
            "prevent_running_task": prevent_running_task,
        } | ({} if task_ids is None else {"task_ids": task_ids})
        # Airflow writes query parameters into its audit log, also those that it does not know.
        params = None if by is None else {"by": by}
        answer = self.request("POST", f"/dags/{_quoted(dag_id)}/clearTaskInstances", params=params, body=body)
        found: list[dict[str, Any]] = answer["task_instances"]
        return found

    def tasks(self, dag_id: str) -> list[dict[str, Any]]:
        """
        List the tasks of a DAG as it is now.

        :param dag_id: the DAG.
        """
        found: list[dict[str, Any]] = self.request("GET", f"/dags/{_quoted(dag_id)}/tasks")["tasks"]
        return found

    def assets_of(self, dag_id: str) -> list[dict[str, Any]]:
        """
        List the assets that a DAG's tasks produce or read.

        :param dag_id: the DAG.
        """
        found: list[dict[str, Any]] = self.request("GET", "/assets", params={"dag_ids": dag_id, "limit": PAGE})[
            "assets"
        ]
        return found

    def _log_in(self) -> None:
        self._client.headers.pop("Authorization", None)
        login = {"username": self._login, "password": self._password}
        token = self._read("POST", "/auth/token", self._send("POST", "/auth/token", None, login))
        self._authorize(str(token["access_token"]))

    def _authorize(self, token: str) -> None:
        self._client.headers["Authorization"] = f"Bearer {token}"

    def _send(self, method: str, path: str, params: Mapping[str, Any] | None, body: Any) -> httpx.Response:
        import httpx

        try:
            answer = self._client.request(method, self.base_url + path, params=params, json=body)
            self.told_at = _date(answer.headers.get("Date"))
            return answer
        except httpx.HTTPError as error:
            raise AirflowUnavailableError(
                f"Airflow's API at {self.base_url} does not answer ({type(error).__name__}: {error})"
            ) from error

    def _read(self, method: str, path: str, answer: httpx.Response) -> Any:
        if answer.status_code >= 300:
            raise AirflowRefusedError(method, path, answer.status_code, answer.text)
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise AirflowRefusedError(method, path, answer.status_code, "the answer is not JSON") from None


def api_of(
    where: str,
    *,
    conn_type: str | None,
    schema: str | None,
    host: str | None,
    port: int | None,
    login: str | None,
    password: str | None,
    extra: Mapping[str, Any],
) -> AirflowApi:
    """
    Read a connection of type ``http``.

    :param where: where it stands, for messages.
    :param schema: ``http`` or ``https``; a host that begins with one of them decides itself.
    :param login: a user's name; without one the password, or ``token`` in the extra, is a token.
    :raises AiflowConfigError: if it is of another type, or a field is missing.
    """
    if conn_type != "http":
        raise AiflowConfigError(f"{where}: Airflow's API needs a connection of type http, got {conn_type!r}")
    if not host:
        raise AiflowConfigError(f"{where}: the host is missing")
    token = password or extra.get("token")
    if not token:
        raise AiflowConfigError(f"{where}: give a login with its password, or a token as the password alone")
    return AirflowApi(_address(where, schema, host, port), login=login or None, password=str(token))


def _address(where: str, schema: str | None, host: str, port: int | None) -> str:
    parts = urlsplit(host if "://" in host else f"{schema or 'http'}://{host}")
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise AiflowConfigError(
            f"{where}: the host must be a name, or an http:// or https:// address without a password"
        )
    netloc = f"{parts.netloc}:{port}" if port and parts.port is None else parts.netloc
    return f"{parts.scheme}://{netloc}{parts.path}"


def run_path(dag_id: str, run_id: str) -> str:
    """
    Give the path of a run, its ids quoted: a run id may hold a slash.

    :param dag_id: the DAG.
    :param run_id: the run.
    """
    return f"/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}"


def _date(text: str | None) -> datetime | None:
    try:
        return None if text is None else parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None


def _quoted(word: str) -> str:
    return quote(word, safe="")


def _is_loopback(host: str) -> bool:
    """Say whether a host is this machine: then no proxy of the environment stands between."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
