"""
An API server that answers as Airflow's does, for commands that clear: real requests, answers that a test writes down.

The answers' shapes are those of Airflow 3.3; what a real Airflow does with them is tested in tests/airflow.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

PASSWORD, TOKEN = "correct horse", "the token"


class AirflowStandIn:
    """
    Hold one run of one DAG.

    :param instances: (task id, map index, state) of its task instances.
    :param downstream: task id -> ids right below it.
    """

    def __init__(
        self, dag_id: str, run_id: str, instances: list[tuple[str, int, str]], downstream: dict[str, list[str]]
    ) -> None:
        self.dag_id, self.run_id = dag_id, run_id
        self.instances = instances
        self.downstream = downstream
        self.assets: list[dict[str, Any]] = []
        #: Bodies of the clears that were carried out.
        self.cleared: list[dict[str, Any]] = []
        self.requests: list[str] = []
        #: Called when a clear is about to be carried out; may give a status to refuse with.
        self.before_clear: Any = lambda: None
        self.logins = 0
        self.url = ""

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> tuple[int, Any]:
        """Answer a request."""
        self.requests.append(f"{method} {path}")
        if path == "/auth/token":
            self.logins += 1
            return (201, {"access_token": TOKEN}) if body["password"] == PASSWORD else (401, {"detail": "Invalid"})
        if token != f"Bearer {TOKEN}":
            return 401, {"detail": "Invalid token"}
        path = path.removeprefix("/api/v2")
        run = f"/dags/{self.dag_id}/dagRuns/{self.run_id}"
        if method == "GET" and path == f"{run}/taskInstances":
            return 200, self._page(query)
        if method == "GET" and path == f"/dags/{self.dag_id}/tasks":
            tasks = [{"task_id": one, "downstream_task_ids": below} for one, below in self.downstream.items()]
            return 200, {"tasks": tasks, "total_entries": len(tasks)}
        if method == "GET" and path == "/assets":
            return 200, {"assets": self.assets, "total_entries": len(self.assets)}
        if method == "POST" and path == f"/dags/{self.dag_id}/clearTaskInstances" and body["dag_run_id"] == self.run_id:
            return self._clear(body)
        return 404, {"detail": "not found"}

    def _page(self, query: dict[str, list[str]]) -> dict[str, Any]:
        offset, limit = int(query["offset"][0]), int(query["limit"][0])
        found = [_plain(*one) for one in self.instances]
        return {"task_instances": found[offset : offset + limit], "total_entries": len(found)}

    def _clear(self, body: dict[str, Any]) -> tuple[int, Any]:
        wanted = body.get("task_ids")
        chosen = {one if isinstance(one, str) else tuple(one) for one in wanted or []}
        if body["include_downstream"]:
            for one in list(chosen):
                chosen |= set(self.downstream.get(one if isinstance(one, str) else one[0], []))
        found = [one for one in self.instances if wanted is None or one[0] in chosen or one[:2] in chosen]
        if not body["dry_run"]:
            refused = self.before_clear()
            if refused:
                return refused, {"detail": "refused by the test"}
            self.cleared.append(body)
        return 200, {"task_instances": [_plain(*one) for one in found], "total_entries": len(found)}


class RecoveringStandIn(AirflowStandIn):
    """Hold one run as recovery reads it: states that can be set, hands in the audit log."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        super().__init__(dag_id, run_id, [], {"pay": ["report"], "report": []})
        self.rows: dict[str, dict[str, Any]] = {}
        self.paused = False
        self.run_state = "running"
        self.log: list[dict[str, Any]] = []

    def put(self, task_id: str, ti_id: UUID, state: str, try_number: int = 1) -> None:
        """Have a task instance."""
        self.rows[task_id] = {
            "id": str(ti_id),
            "task_id": task_id,
            "map_index": -1,
            "state": state,
            "try_number": try_number,
            "start_date": "2026-11-30T08:00:00+00:00",
            "end_date": None,
        }

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> tuple[int, Any]:
        """Answer what recovery asks."""
        if path == "/auth/token" or token != f"Bearer {TOKEN}":
            return super().answer(method, path, query, body, token)
        self.requests.append(f"{method} {path}")
        path = path.removeprefix("/api/v2")
        return self._read(path, query) if method == "GET" else self._changed(method, path, body)

    def _read(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        run = f"/dags/{self.dag_id}/dagRuns/{self.run_id}"
        if path == f"{run}/taskInstances":
            wanted, states = query.get("task_id"), query.get("state", [])
            found = [row for row in self.rows.values() if not wanted or row["task_id"] in wanted]
            found = [row for row in found if not states or row["state"] in states]
            return 200, {"task_instances": found, "total_entries": len(found)}
        if path == "/eventLogs":
            found = [one for one in self.log if one["event"] in query["included_events"]]
            return 200, {"event_logs": found, "total_entries": len(found)}
        tasks = [{"task_id": one, "downstream_task_ids": below} for one, below in self.downstream.items()]
        answers: dict[str, Any] = {
            "/dags/~/dagRuns/~/taskInstances": {"task_instances": [], "total_entries": 0},
            "/dags/~/dagRuns": {"dag_runs": [], "total_entries": 0},
            run: {"dag_run_id": self.run_id, "state": self.run_state},
            f"/dags/{self.dag_id}": {"dag_id": self.dag_id, "is_paused": self.paused},
            f"/dags/{self.dag_id}/tasks": {"tasks": tasks, "total_entries": len(tasks)},
        }
        return (200, answers[path]) if path in answers else (404, {"detail": "not found"})

    def _changed(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        run = f"/dags/{self.dag_id}/dagRuns/{self.run_id}"
        if method == "PATCH" and path == f"{run}/taskInstances":
            for action in body["actions"]:
                for one in action["entities"]:
                    self.rows[one["task_id"]]["state"] = one["new_state"]
            return 200, {"update": {"success": [], "errors": []}}
        if method == "PATCH" and path == run:
            self.run_state = body["state"]
            return 200, {"dag_run_id": self.run_id, "state": self.run_state}
        if method == "POST" and path == f"/dags/{self.dag_id}/clearTaskInstances":
            self.cleared.append(body)
            return 200, {"task_instances": [self.rows[one] for one in body["task_ids"]], "total_entries": 1}
        return 404, {"detail": "not found"}


def _plain(task_id: str, map_index: int, state: str) -> dict[str, Any]:
    return {"task_id": task_id, "map_index": map_index, "state": state, "duration": 1.5}


@contextmanager
def serving(stand_in: AirflowStandIn) -> Iterator[str]:
    """
    Serve on the loopback address.

    :param stand_in: who answers.
    :return: the address.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_PATCH(self) -> None:
            self._answer()

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            token = self.headers.get("Authorization", "")
            status, value = stand_in.answer(self.command, unquote(parts.path), parse_qs(parts.query), body, token)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stand_in.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
