"""What both clients say and understand: requests, keys, events, and when to try again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

#: Seconds between two tries while the server can't be asked, and between two polls: grows to the last one.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0)

#: Seconds of one long poll, and of a stream that the server ends in time: below what proxies allow a silent connection.
POLL_SECONDS = 20.0

#: Seconds of one poll for events, behind a proxy that holds streams back.
EVENT_POLL_SECONDS = 10.0

#: Seconds for an ordinary answer.
TIMEOUT = 30.0

#: Seconds without a byte after which a stream counts as broken: the server speaks at once, and at least every 15.
SILENCE = 25.0

#: Answers after which the same request makes sense again.
AGAIN = frozenset({429, 502, 503, 504})

FINISHED = frozenset({"succeeded", "failed", "cancelled"})


class SubmitError(Exception):
    """
    The server refused.

    :param status: HTTP status.
    :param problem: the problem document.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title') or 'refused'}")


class SubmissionFailedError(Exception):
    """
    A submission ended without a result.

    :param submission: as it stands.
    """

    def __init__(self, submission: Mapping[str, Any]) -> None:
        self.submission = dict(submission)
        why = f": {submission['error']}" if submission.get("error") else ""
        super().__init__(f"submission {submission['submission_id']} {submission['state']}{why}")


@dataclass(frozen=True, slots=True)
class Event:
    """
    Hold one event of a stream.

    :param name: ``event``: of a task; ``state``: a submission's state has changed.
    :param data: its members.
    :param cursor: to go on behind it; ``None``: it has none of its own.
    """

    name: str
    data: dict[str, Any]
    cursor: str | None


def make_key(user: str, pipeline: str, given: Mapping[str, Any], window: timedelta | None, now: float) -> str:
    """
    Make a key, so that a repeat within a time window finds its task.

    :param user: who asks.
    :param pipeline: the DAG.
    :param given: its input.
    :param window: windows follow each other without a gap; ``None``: one for ever.
    :param now: seconds since the epoch, of the caller's clock.
    """
    slot = 0 if window is None else int(now // window.total_seconds())
    text = json.dumps([user, pipeline, given, slot], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"auto-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def address(base_url: str) -> str:
    """
    Complete the address of an Airflow.

    :param base_url: such as ``https://airflow.example.com``, a path included.
    """
    return f"{base_url.rstrip('/')}/aiflow/api/v1"


def problem_of(body: bytes, media_type: str) -> Mapping[str, Any]:
    """
    Read an error's body.

    :param body: whatever came; a proxy may have written it.
    :param media_type: of it.
    """
    if "json" in media_type:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
    return {"detail": body[:200].decode("utf-8", "replace")}


def pause_after(tried: int, retry_after: str | None = None) -> float:
    """
    Say how long to wait.

    :param tried: how often in vain.
    :param retry_after: what the server said, in seconds; anything else is left aside.
    """
    own = PAUSES[min(tried, len(PAUSES) - 1)]
    if retry_after is not None and retry_after.isdigit():
        return max(own, min(float(retry_after), PAUSES[-1]))
    return own


class EventReader:
    """Put server-sent events together from the lines of a stream."""

    def __init__(self) -> None:
        self._name = "message"
        self._data: list[str] = []
        self._cursor: str | None = None

    def line(self, text: str) -> Iterator[Event]:
        """
        Take a line.

        :param text: without its end.
        :return: the event that it ended, if any.
        """
        if not text:
            if self._data:
                yield Event(self._name, json.loads("\n".join(self._data)), self._cursor)
            self._name, self._data, self._cursor = "message", [], None
            return
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._cursor = value
