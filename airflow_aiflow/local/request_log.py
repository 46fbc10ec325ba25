"""Count what arrived at a stand-in, in a file that survives any kill of the server or of its clients.

Each event is one line, written by a single call before the server goes on, so a killed server has counted every
request that it took. A request whose line stands there was taken; its `answer` line says what it was answered.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CountedRequest:
    """One request that arrived.

    :param id: the id that the answer carries.
    :param at: time of arrival, UTC, ISO 8601.
    :param fields: what the server wrote about it: digest, model, path ...
    :param fault: kind of the fault that it met; None for good behaviour.
    :param status: HTTP status of an answer sent to its last byte; None where none was.
    """

    id: str
    at: str
    fields: dict[str, Any]
    fault: str | None
    status: int | None

    @property
    def answered(self) -> bool:
        """Tell whether the client was sent a whole good answer."""
        return self.status is not None and self.status < 400


class RequestLog:
    """The server's side: append events."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def arrived(self, request_id: str, fault: str | None, **fields: Any) -> None:
        """Count a request before anything is done with it."""
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        self._append({"event": "request", "id": request_id, "at": at, "fault": fault, "fields": fields})

    def answered(self, request_id: str, status: int) -> None:
        """Note that the last bytes of a whole answer go out now."""
        self._append({"event": "answer", "id": request_id, "status": status})

    def _append(self, event: dict[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(event).encode() + b"\n")


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a file that is being appended to; a last line without its end is left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = content[: content.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]


def read_requests(path: Path) -> list[CountedRequest]:
    """Give every request that arrived, in order of arrival.

    :param path: the count file; a missing one holds no requests.
    """
    events = read_events(path)
    statuses = {event["id"]: int(event["status"]) for event in events if event["event"] == "answer"}
    return [
        CountedRequest(event["id"], event["at"], event["fields"], event["fault"], statuses.get(event["id"]))
        for event in events
        if event["event"] == "request"
    ]
