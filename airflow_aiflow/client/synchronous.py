"""The client for ordinary code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx

from airflow_aiflow.client import protocol
from airflow_aiflow.client.protocol import Event, EventReader, SubmissionFailedError, SubmitError

#: What is lost with a connection, and may be asked again.
LOST = (httpx.TransportError,)


class AiflowClient:
    """
    Speak to one Airflow.

    :param base_url: its address, such as ``https://airflow.example.com``.
    :param token: a token of Airflow's; or
    :param login: a user's name and
    :param password: password, for which a token is fetched.
    :param patience: seconds for which a server that can't be reached is asked again.
    :param transport: of httpx, for tests and special routes.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        login: str | None = None,
        password: str | None = None,
        patience: float = 120.0,
        transport: httpx.BaseTransport | None = None,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._base = base_url.rstrip("/")
        self._api = protocol.address(base_url)
        self._login, self._password = login, password
        self._patience, self._pause, self._clock = patience, wait, clock
        self._http = httpx.Client(timeout=protocol.TIMEOUT, transport=transport)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back. The tasks go on."""
        self._http.close()

    def submit(
        self,
        pipeline: str,
        input: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        window: timedelta | None = timedelta(days=1),
        **more: Any,
    ) -> dict[str, Any]:
        """
        Hand in a task, or find the one that is there.

        :param pipeline: the DAG.
        :param input: its params.
        :param key: idempotency key; ``None``: made from user, pipeline, input and time window.
        :param window: in which equal submits without a key are one.
        :param more: ``labels``, ``priority``, ``deadline``.
        :return: how it stands.
        :raises SubmitError: if it is refused.
        """
        given = dict(input or {})
        key = key or protocol.make_key(self._login or "", pipeline, given, window, self._clock())
        body = {"pipeline": pipeline, "input": given, "idempotency_key": key, **more}
        found: dict[str, Any] = self._ask("POST", "/submissions", json=body).json()
        return found

    def get(self, submission_id: str | UUID) -> dict[str, Any]:
        """
        Tell how a submission stands.

        :param submission_id: which one.
        """
        found: dict[str, Any] = self._ask("GET", f"/submissions/{UUID(str(submission_id))}").json()
        return found

    def list(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """
        List submissions, the newest first, page by page.

        :param filters: ``pipeline``, ``state``, ``label``, ``since``, ``until``, ``mine``.
        """
        params: dict[str, Any] = dict(filters)
        while True:
            page = self._ask("GET", "/submissions", params=params).json()
            yield from page["submissions"]
            if page["next"] is None:
                return
            params["cursor"] = page["submissions"][-1]["submission_id"]

    def cancel(self, submission_id: str | UUID) -> dict[str, Any]:
        """
        End a submission between two steps; what is at work may take a while to come there.

        :param submission_id: which one.
        """
        return self._move(submission_id, "cancel")

    def pause(self, submission_id: str | UUID) -> dict[str, Any]:
        """
        Let nothing more of a submission start; what is at work parks at its next step.

        :param submission_id: which one.
        """
        return self._move(submission_id, "pause")

    def resume(self, submission_id: str | UUID) -> dict[str, Any]:
        """
        Let a paused submission go on where it was.

        :param submission_id: which one.
        """
        return self._move(submission_id, "resume")

    def retry(self, submission_id: str | UUID) -> dict[str, Any]:
        """
        Run a finished submission again: what is recorded replays.

        :param submission_id: which one.
        """
        return self._move(submission_id, "retry")

    def _move(self, submission_id: str | UUID, word: str) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("POST", f"/submissions/{UUID(str(submission_id))}:{word}").json()
        return found

    def wait(self, submission_id: str | UUID, *, timeout: float | None = None) -> dict[str, Any]:
        """
        Wait for the end, by the event stream; a server that restarts meanwhile is waited for.

        Where there is no stream, or it breaks, the server is asked by long polls; what has broken is tried again.

        :param submission_id: which one.
        :param timeout: seconds; ``None``: as long as it takes.
        :return: how it stands.
        :raises TimeoutError: if it has not ended in time; it goes on.
        """
        one, until = UUID(str(submission_id)), math.inf if timeout is None else self._clock() + timeout
        streams, tried = True, 0
        while (left := until - self._clock()) > 0:
            asked, heard = self._clock(), False
            if streams:
                streams, heard = self._hear_end(one, left)
                if self._clock() - asked >= protocol.PAUSES[-1]:
                    tried = 0  # it held for a while
            poll = protocol.pause_after(tried) if streams else protocol.POLL_SECONDS
            try:
                found = self._look(one, 0.0 if heard else max(0.0, min(poll, until - self._clock())), until)
            except (*LOST, SubmitError) as error:
                refused = isinstance(error, SubmitError) and error.status not in protocol.AGAIN
                if refused or self._clock() < until:
                    raise
                break
            if found["state"] in protocol.FINISHED:
                return found
            # The polls themselves are the pauses, but for a server that answers them at once.
            self._pause(max(0.0, min(asked + protocol.pause_after(tried), until) - self._clock()))
            tried += 1
        raise TimeoutError(f"submission {submission_id} has not ended in {timeout:g} s; it goes on")

    def _hear_end(self, one: UUID, left: float) -> tuple[bool, bool]:
        """
        Follow the stream of states until an end is told, the stream is over, or it is time to leave it.

        :param one: the submission.
        :param left: seconds for all of it; for the last ones the server ends the stream in time.
        :return: whether streams come through here, and whether an end was told.
        """
        url, params, came = f"{self._api}/submissions/{one}/events", {"states": "true"}, False
        leave = self._clock() + left - protocol.SILENCE
        if left <= protocol.SILENCE:
            params["wait"], leave = f"{min(left, protocol.POLL_SECONDS):.3f}", self._clock() + left
        try:
            with closing(self._events(url, None, late=False, params=params, leave=leave)) as events:
                for event in events:
                    came = True
                    if event.name == "state" and event.data.get("state") in protocol.FINISHED:
                        return True, True
        except SubmitError as refused:
            return refused.status in protocol.AGAIN, False
        except LOST as error:
            # The server speaks at once: not a byte means that somebody between waits for the end of the answer.
            return came or not isinstance(error, httpx.ReadTimeout), False
        return True, False

    def _look(self, one: UUID, poll: float, until: float) -> dict[str, Any]:
        options: dict[str, Any] = {"params": {"wait": poll}, "timeout": poll + protocol.TIMEOUT}
        found: dict[str, Any] = self._ask("GET", f"/submissions/{one}", until=until, **options).json()
        return found

    def result(self, submission_id: str | UUID) -> Any:
        """
        Give the result of one that has succeeded.

        :param submission_id: which one.
        :return: JSON, decoded; of another media type the bytes.
        :raises SubmitError: if it has none, or not yet (409).
        """
        answer = self._ask("GET", f"/submissions/{UUID(str(submission_id))}/result")
        return answer.json() if "json" in answer.headers["Content-Type"] else answer.content

    def submit_and_wait(
        self, pipeline: str, input: Mapping[str, Any] | None = None, *, timeout: float | None = None, **more: Any
    ) -> Any:
        """
        Hand in a task and give its result.

        :param timeout: seconds for the end.
        :param more: as for ``submit``.
        :raises SubmissionFailedError: if it ended without one.
        """
        ended = self.wait(self.submit(pipeline, input, **more)["submission_id"], timeout=timeout)
        if ended["state"] != "succeeded":
            raise SubmissionFailedError(ended)
        return self.result(ended["submission_id"])

    def stream(self, submission_id: str | UUID, *, after: str | None = None) -> Generator[Event, None, None]:
        """
        Follow a submission to its end; a broken stream is gone on with, without a gap or a repeat.

        Where a proxy holds streams back, events come by short polls of the same route.

        :param submission_id: which one.
        :param after: the cursor of the last event that was seen.
        """
        url = f"{self._api}/submissions/{UUID(str(submission_id))}/events"
        states: set[str] = set()
        tried, began, held = 0, self._clock(), False
        while True:
            came, silence = False, protocol.SILENCE
            params: dict[str, str] = {}
            if held:
                params, silence = {"wait": str(protocol.EVENT_POLL_SECONDS)}, silence + protocol.EVENT_POLL_SECONDS
            try:
                late = self._clock() - began > self._patience
                for event in self._events(url, after, late=late, params=params, silence=silence):
                    tried, began, came = 0, self._clock(), True
                    after = event.cursor or after
                    state = event.data.get("state") if event.name == "state" else None
                    if state is None or state not in states:
                        yield event
                    if state in protocol.FINISHED:
                        return
                    states = {state} if state else states
            except LOST as error:
                if self._clock() - began > self._patience:
                    raise
                # The server speaks at once: not a byte means that somebody between waits for the end of the answer.
                held = held or (isinstance(error, httpx.ReadTimeout) and not came)
            if held and came:
                continue
            self._pause(protocol.pause_after(tried))
            tried += 1

    def _events(
        self,
        url: str,
        after: str | None,
        *,
        late: bool,
        params: Mapping[str, str],
        silence: float | None = None,
        leave: float = math.inf,
    ) -> Generator[Event, None, None]:
        """
        Read one stream.

        :param late: whether a server that is away is told of.
        :param silence: seconds without a byte after which it counts as broken; ``None``: the usual ones.
        :param leave: moment of the clock after which the next sign of life is the last.
        """
        self._sign_in()
        headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": after})
        timeout = httpx.Timeout(protocol.SILENCE if silence is None else silence)
        with self._http.stream("GET", url, headers=headers, params=params, timeout=timeout) as answer:
            if answer.status_code in protocol.AGAIN and not late:
                return
            if answer.status_code == 401 and self._login is not None and not late:
                self._http.headers.pop("Authorization", None)  # the token has run out
                return
            if answer.status_code != 200:
                answer.read()
                raise SubmitError(
                    answer.status_code, protocol.problem_of(answer.content, answer.headers.get("Content-Type", ""))
                )
            reader, rest = EventReader(), ""
            for text in answer.iter_text():
                # Not by the client's own lines: for those U+2028 and U+0085 end one, and JSON holds them as they are.
                *lines, rest = (rest + text).split("\n")
                for line in lines:
                    yield from reader.line(line.removesuffix("\r"))
                if self._clock() >= leave:
                    return

    def _ask(self, method: str, path: str, *, until: float = math.inf, **options: Any) -> httpx.Response:
        """
        Ask until there is an answer: every request of ours may be repeated.

        :param until: moment of the clock until which it is asked again, where patience does not end before.
        """
        began, tried = self._clock(), 0
        end = min(began + self._patience, until)
        while True:
            try:
                self._sign_in()
                answer = self._http.request(method, f"{self._api}{path}", **options)
            except LOST:
                if self._clock() >= end:
                    raise
                said = None
            else:
                if answer.status_code == 401 and self._login is not None and tried == 0:
                    self._http.headers.pop("Authorization", None)  # the token has run out
                    tried += 1
                    continue
                late = self._clock() >= end
                if answer.status_code < 400:
                    return answer
                if answer.status_code not in protocol.AGAIN or late:
                    problem = protocol.problem_of(answer.content, answer.headers.get("Content-Type", ""))
                    raise SubmitError(answer.status_code, problem)
                said = answer.headers.get("Retry-After")
            self._pause(min(protocol.pause_after(tried, said), max(0.0, until - self._clock())))
            tried += 1

    def _sign_in(self) -> None:
        if "Authorization" in self._http.headers or self._login is None:
            return
        login = {"username": self._login, "password": self._password}
        answer = self._http.post(f"{self._base}/auth/token", json=login)
        if answer.status_code >= 400:
            raise SubmitError(answer.status_code, {"detail": f"Airflow gave {self._login} no token"})
        self._http.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
