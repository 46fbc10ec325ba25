"""A small client of Airflow's REST API, for the demo, the tests and the start-up check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import requests

from airflow_aiflow.exceptions import StackError

#: Seconds for one answer; a cold API server takes some.
TIMEOUT = 30.0
#: Seconds between two looks at a state.
POLL = 0.1
END_STATES = frozenset({"success", "failed"})


class AirflowApiError(StackError):
    """Say that the API refused a request; status and body are in the message."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        self.status = status
        super().__init__(f"{method} {path}: {status} {body[:500]}")


class AirflowClient:
    """Speak to one API server.

    :param base_url: its address, such as ``http://127.0.0.1:8080``.
    :param user: name to log in with.
    :param password: its password.
    """

    def __init__(self, base_url: str, user: str, password: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._login = {"username": user, "password": password}
        self._session = requests.Session()
        # The address is on this machine: no proxy, no .netrc.
        self._session.trust_env = False

    def request(self, method: str, path: str, *, params: Any = None, body: Any = None) -> Any:
        """Send a request to ``/api/v2``.

        :param method: HTTP method.
        :param path: what follows ``/api/v2``.
        :param params: query.
        :param body: JSON body.
        :return: the JSON answer; None where there is none.
        :raises AirflowApiError: the API answered with an error.
        """
        if "Authorization" not in self._session.headers:
            self._log_in()
        answer = self._send(method, path, params, body)
        if answer.status_code == 401:
            self._log_in()
            answer = self._send(method, path, params, body)
        if answer.status_code >= 400:
            raise AirflowApiError(method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def health(self) -> dict[str, Any]:
        """Give the state of the components; needs no log-in."""
        answer = self._session.get(f"{self._base_url}/api/v2/monitor/health", timeout=TIMEOUT)
        answer.raise_for_status()
        value: dict[str, Any] = answer.json()
        return value

    def warm_up(self) -> None:
        """Have the API for tasks built, which costs the first request to it some seconds; needs no log-in."""
        self._session.get(f"{self._base_url}/execution/health", timeout=TIMEOUT).raise_for_status()

    def dag(self, dag_id: str) -> dict[str, Any]:
        """Give a DAG."""
        value: dict[str, Any] = self.request("GET", f"/dags/{_quoted(dag_id)}")
        return value

    def wait_for_dag(self, dag_id: str, timeout: float = 60) -> dict[str, Any]:
        """Wait until a DAG has been parsed.

        :raises StackError: it has not; what the API knows of import errors is in the message.
        """

        def known() -> dict[str, Any] | None:
            try:
                return self.dag(dag_id)
            except AirflowApiError as error:
                if error.status != 404:
                    raise
                return None

        try:
            return wait_for(known, f"DAG {dag_id}", timeout)
        except StackError as error:
            raise StackError(f"{error}; import errors: {self.import_errors()}") from None

    def import_errors(self) -> list[dict[str, Any]]:
        """Give the DAG files that failed to import."""
        errors: list[dict[str, Any]] = self.request("GET", "/importErrors")["import_errors"]
        return errors

    def trigger(
        self,
        dag_id: str,
        conf: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        *,
        logical_date: str | None = None,
    ) -> str:
        """Start a run.

        :param dag_id: the DAG.
        :param conf: its parameters.
        :param run_id: its name; None lets Airflow make one.
        :param logical_date: in ISO form; None: the run has none.
        :return: the run's id.
        """
        body: dict[str, Any] = {"logical_date": logical_date, "conf": dict(conf or {})}
        if run_id is not None:
            body["dag_run_id"] = run_id
        return str(self.request("POST", f"/dags/{_quoted(dag_id)}/dagRuns", body=body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Give a run."""
        value: dict[str, Any] = self.request("GET", _run_path(dag_id, run_id))
        return value

    def delete_run(self, dag_id: str, run_id: str) -> None:
        """Delete a run."""
        self.request("DELETE", _run_path(dag_id, run_id))

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Give the task instances of a run, as they are now."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances"
        found: list[dict[str, Any]] = self.request("GET", path, params={"limit": 1000})["task_instances"]
        return found

    def task_instance(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Give one task instance, as it is now."""
        value: dict[str, Any] = self.request("GET", _task_path(dag_id, run_id, task_id, map_index))
        return value

    def tries(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[dict[str, Any]]:
        """Give every try of a task instance, the present one last."""
        path = f"{_task_path(dag_id, run_id, task_id, map_index)}/tries"
        found: list[dict[str, Any]] = self.request("GET", path)["task_instances"]
        return found

    def clear(self, dag_id: str, run_id: str, *task_ids: str, **options: Any) -> list[dict[str, Any]]:
        """Clear tasks of a run, as a person does in the UI.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param task_ids: the tasks; none means all.
        :param options: further fields of the request, such as ``include_downstream=True``.
        :return: the task instances that were cleared.
        """
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True, **options}
        if task_ids:
            body["task_ids"] = list(task_ids)
        answer = self.request("POST", f"/dags/{_quoted(dag_id)}/clearTaskInstances", body=body)
        found: list[dict[str, Any]] = answer["task_instances"]
        return found

    def set_state(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Mark a task instance as success, failed or skipped."""
        self.request("PATCH", _task_path(dag_id, run_id, task_id, map_index), body={"new_state": state})

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Give an XCom value in the form in which the API shows it."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{_quoted(task_id)}/xcomEntries/{_quoted(key)}"
        return self.request("GET", path, params={"map_index": map_index})["value"]

    def logs(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Give the log of one try, a line an event."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{_quoted(task_id)}/logs/{try_number}"
        answer = self.request("GET", path, params={"map_index": map_index, "full_content": "true"})
        content = answer["content"]
        if isinstance(content, str):
            return content
        return "\n".join(_line(entry) if isinstance(entry, dict) else str(entry) for entry in content)

    def wait_for_run(self, dag_id: str, run_id: str, timeout: float = 120, states: frozenset[str] = END_STATES) -> str:
        """Wait until a run has one of some states.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param timeout: seconds.
        :param states: the states to wait for; finished ones by default.
        :return: the state.
        :raises StackError: the time is up; the states of its tasks are in the message.
        """

        def ended() -> str | None:
            state = str(self.run(dag_id, run_id)["state"])
            return state if state in states else None

        try:
            return wait_for(ended, f"run {run_id} of {dag_id}", timeout)
        except StackError as error:
            now = {
                f"{each['task_id']}[{each['map_index']}]": each["state"] for each in self.task_instances(dag_id, run_id)
            }
            raise StackError(f"{error}; its tasks: {now}") from None

    def wait_for_task(
        self, dag_id: str, run_id: str, task_id: str, *states: str, map_index: int = -1, timeout: float = 120
    ) -> dict[str, Any]:
        """Wait until a task instance has one of some states.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param task_id: the task.
        :param states: the states.
        :param map_index: index of a mapped task instance.
        :param timeout: seconds.
        :return: the task instance.
        """

        def reached() -> dict[str, Any] | None:
            found = self.task_instance(dag_id, run_id, task_id, map_index)
            return found if found["state"] in states else None

        return wait_for(reached, f"task {task_id} of run {run_id} in {'/'.join(states)}", timeout)

    def _send(self, method: str, path: str, params: Any, body: Any) -> requests.Response:
        url = f"{self._base_url}/api/v2{path}"
        headers = {"Accept": "application/json"}
        return self._session.request(method, url, params=params, json=body, headers=headers, timeout=TIMEOUT)

    def _log_in(self) -> None:
        self._session.headers.pop("Authorization", None)
        answer = self._session.post(f"{self._base_url}/auth/token", json=self._login, timeout=TIMEOUT)
        if answer.status_code >= 400:
            raise AirflowApiError("POST", "/auth/token", answer.status_code, answer.text)
        self._session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"


T = TypeVar("T")


def wait_for(look: Callable[[], T | None], what: str, timeout: float) -> T:
    """Look again and again until there is something.

    :param look: gives None while there is nothing yet.
    :param what: for the message.
    :param timeout: seconds.
    :raises StackError: the time is up.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise StackError(f"{what} did not come about within {timeout:.0f} s")
        time.sleep(POLL)


def heartbeats_since(health: Mapping[str, Any], started: datetime) -> bool:
    """Tell whether every component is healthy by a heartbeat of its own, not by one of the start before.

    :param health: what the API says.
    :param started: time of this start.
    """
    for name in ("scheduler", "dag_processor", "triggerer"):
        part = health.get(name) or {}
        beat = part.get(f"latest_{name}_heartbeat")
        if part.get("status") != "healthy" or beat is None or datetime.fromisoformat(beat) < started:
            return False
    return bool((health.get("metadatabase") or {}).get("status") == "healthy")


def _line(entry: Mapping[str, Any]) -> str:
    """Give an entry of a log as a line; of one about an error, which one it was."""
    errors = [f"{error.get('exc_type')}: {error.get('exc_value')}" for error in entry.get("error_detail") or ()]
    return ": ".join([str(entry.get("event", "")), *errors])


def _quoted(word: str) -> str:
    return quote(word, safe="")


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}"


def _task_path(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    path = f"{_run_path(dag_id, run_id)}/taskInstances/{_quoted(task_id)}"
    return path if map_index < 0 else f"{path}/{map_index}"
