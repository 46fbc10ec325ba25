"""Faults that the stand-ins show when they are told to, so that recovery can be tried against a real socket.

A control file holds a list of faults and is read again for each request, so a running server changes its behaviour at
once. Each fault may be limited to a number of requests; the counts start anew whenever the file is written.

===========  =========================================================================================================
kind         what the client sees
===========  =========================================================================================================
delay        the right answer, `seconds` later
silent       nothing, for as long as it waits
drip         the right answer, one byte every `seconds` (1 by default)
status       an answer with `status` (429, 500, 503 ...) and, where given, the header `Retry-After`; nothing was done
cut          the request is taken and done, then the socket is cut without a byte of the answer
no_end       a stream that closes properly but lacks its end marker; for a whole answer the same as `truncate`
truncate     half of the announced body, then the socket is cut
===========  =========================================================================================================
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.http_wire import Response, Wire, WireError, chunk
from airflow_aiflow.local.private_file import write_json

Kind = Literal["delay", "silent", "drip", "status", "cut", "no_end", "truncate"]
#: Seconds between two bytes of a dripped answer: slow enough that every read time-out is met, byte by byte.
DRIP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    :param kind: what to do, as in the table above.
    :param first: only so many requests, after the skipped ones; None means all.
    :param skip: leave so many matching requests alone before.
    :param seconds: delay, or time between two bytes.
    :param status: HTTP status of kind `status`.
    :param retry_after: value of the header, seconds or an HTTP date; None leaves it out.
    :param contains: only requests whose body contains this text.
    :param applied: for `silent` and `cut`: whether the request is done before (a record is created) or not at all.
    """

    kind: Kind
    first: int | None = None
    skip: int = 0
    seconds: float | None = None
    status: int = 500
    retry_after: str | None = None
    contains: str | None = None
    applied: bool = True

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise StackError(f"fault kind {self.kind!r} is unknown: one of {', '.join(get_args(Kind))}")

    @property
    def does_nothing(self) -> bool:
        """Tell whether the request has no effect in the server."""
        return self.kind == "status" or (self.kind in ("silent", "cut") and not self.applied)


def write_faults(path: Path, faults: Sequence[Fault]) -> None:
    """Tell a running server how to behave from its next request on.

    :param path: its control file.
    :param faults: the first one that matches a request and is not used up is shown; none at all means good behaviour.
    """
    write_json(path, {"written": uuid.uuid4().hex, "faults": [asdict(fault) for fault in faults]})


class FaultPlan:
    """A server's view of its control file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw = b""
        self._faults: list[Fault] = []
        self._seen: list[int] = []

    def next(self, body: bytes) -> Fault | None:
        """Take the fault for a request that has just arrived.

        :param body: the request's body, for `contains`.
        :return: None for good behaviour.
        """
        self._reread()
        for position, fault in enumerate(self._faults):
            if fault.contains is not None and fault.contains.encode() not in body:
                continue
            self._seen[position] += 1
            number = self._seen[position] - fault.skip
            if number > 0 and (fault.first is None or number <= fault.first):
                return fault
        return None

    def next_in_batch(self, line: bytes) -> Fault | None:
        """Take the fault for one request of a batch: of kind `status`, and only one that says which.

        :param line: the request, for `contains`.
        :return: None for good behaviour.
        """
        self._reread()
        for fault in self._faults:
            if fault.kind == "status" and fault.contains is not None and fault.contains.encode() in line:
                return fault
        return None

    def _reread(self) -> None:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            raw = b""
        if raw == self._raw:
            return
        try:
            value: dict[str, Any] = json.loads(raw) if raw else {}
            self._faults = [Fault(**fault) for fault in value.get("faults", [])]
        except (ValueError, TypeError, AttributeError, StackError) as error:
            raise WireError(f"control file {self._path}: {error}") from error
        self._seen = [0] * len(self._faults)
        self._raw = raw


async def send_with(
    fault: Fault | None, response: Response, wire: Wire, answered: Callable[[int], None], *, end_pieces: int = 1
) -> None:
    """Send an answer, well or as a fault has it.

    :param fault: None sends it well.
    :param response: the right answer.
    :param wire: the client's connection.
    :param answered: told the status just before the last bytes of a whole answer go out, so that a client that has the
        answer finds it counted.
    :param end_pieces: how many of the last pieces of a stream make its end marker.
    """
    if fault is None or fault.kind == "delay":
        await asyncio.sleep(fault.seconds or 0 if fault else 0)
        answered(response.status)
        await wire.send(response)
        return
    match fault.kind:
        case "status":
            headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
            error = {"message": "told to fail", "type": "stand_in", "code": str(fault.status), "param": None}
            answered(fault.status)
            await wire.send(Response.of_json({"error": error}, fault.status, headers))
        case "silent":
            await wire.until_client_leaves()
            wire.cut()
        case "cut":
            wire.cut()
        case "drip":
            await _drip(response, wire, answered, DRIP_SECONDS if fault.seconds is None else fault.seconds)
        case "no_end" if response.pieces is not None:
            kept = response.pieces[: len(response.pieces) - end_pieces]
            await wire.send(Response(response.status, b"", response.content_type, response.headers, kept))
        case "no_end" | "truncate":
            await _truncate(response, wire)


async def _drip(response: Response, wire: Wire, answered: Callable[[int], None], seconds: float) -> None:
    await wire.write(response.head())
    body = response.body if response.pieces is None else b"".join(chunk(piece) for piece in (*response.pieces, b""))
    for position in range(len(body)):
        await asyncio.sleep(seconds)
        if position == len(body) - 1:
            answered(response.status)
        await wire.write(body[position : position + 1])


async def _truncate(response: Response, wire: Wire) -> None:
    await wire.write(response.head())
    if response.pieces is None:
        await wire.write(response.body[: len(response.body) // 2])
    else:
        for piece in response.pieces[: (len(response.pieces) + 1) // 2]:
            await wire.write(chunk(piece))
    wire.close()
