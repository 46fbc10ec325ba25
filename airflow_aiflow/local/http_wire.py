"""A small HTTP/1.1 server whose socket the answering code can misuse on purpose.

The stand-ins must drip, fall silent, cut the connection or announce more bytes than they send; a finished web server
prevents exactly that. Bodies of requests come with a length or in chunks; connections are kept alive.

Not covered: TLS, compression, HTTP/2, pipelining, request bodies over the limit below.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from airflow_aiflow.local.ports import LOOPBACK

#: A model request with a long history is a few megabytes; this only stops a runaway client.
LARGEST_BODY = 64 << 20
JSON_TYPE = "application/json"


class WireError(Exception):
    """Say that a client's bytes are no HTTP request; the connection is closed."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Parse the body.

        :raises ValueError: it is no JSON.
        """
        return json.loads(self.body)

    def bearer(self) -> str:
        """Give the token of the Authorization header, or an empty string."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; `pieces` instead of `body` makes it a stream in chunks."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] | None = None

    @classmethod
    def of_json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """Make an answer from a JSON value."""
        return cls(status, json.dumps(value, ensure_ascii=False).encode(), JSON_TYPE, headers or {})

    def head(self) -> bytes:
        """Give the status line and headers as they go over the wire."""
        length = ["Transfer-Encoding: chunked"] if self.pieces is not None else [f"Content-Length: {len(self.body)}"]
        named = [f"{name}: {value}" for name, value in self.headers.items()]
        first = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"
        return "\r\n".join([first, f"Content-Type: {self.content_type}", *length, *named, "", ""]).encode("latin-1")


class Wire:
    """One client's connection, as the answering code sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def write(self, content: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(content)
        await self._writer.drain()

    async def send(self, response: Response) -> None:
        """Send a whole answer, as a well-behaved server does."""
        if response.pieces is None:
            await self.write(response.head() + response.body)
            return
        await self.write(response.head())
        for piece in response.pieces:
            await self.write(chunk(piece))
        await self.write(chunk(b""))

    async def until_client_leaves(self) -> None:
        """Wait until the client closes its side."""
        while await self._reader.read(4096):
            pass

    def close(self) -> None:
        """Close the connection after what has been written is out."""
        self._writer.close()

    def cut(self) -> None:
        """Drop the connection with whatever has not been sent."""
        self._writer.transport.abort()

    async def read_request(self) -> Request | None:
        """Read the next request.

        :return: None where the client has closed the connection.
        :raises WireError: the bytes are no HTTP request.
        """
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise WireError("the head ended early") from error
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        try:
            method, target, _ = first.split(" ")
        except ValueError as error:
            raise WireError(f"no request line: {first[:80]!r}") from error
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        parts = urlsplit(target)
        if headers.get("expect", "").lower() == "100-continue":
            await self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Request(method, parts.path, parse_qs(parts.query), headers, await self._read_body(headers))

    async def _read_body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            pieces: list[bytes] = []
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                pieces.append(await self._reader.readexactly(size))
                await self._reader.readexactly(2)
                if sum(map(len, pieces)) > LARGEST_BODY:
                    raise WireError("the body is too large")
            await self._reader.readline()
            return b"".join(pieces)
        length = int(headers.get("content-length") or 0)
        if not 0 <= length <= LARGEST_BODY:
            raise WireError(f"a body of {length} bytes is not taken")
        return await self._reader.readexactly(length)


def chunk(content: bytes) -> bytes:
    """Frame a piece of a stream; an empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(content), content)


Answer = Callable[[Request, Wire], Awaitable[None]]


async def _serve_client(answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    wire = Wire(reader, writer)
    try:
        while request := await wire.read_request():
            await answer(request, wire)
            if writer.is_closing() or request.headers.get("connection", "").lower() == "close":
                break
    except (WireError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        if not writer.is_closing():
            await wire.send(Response.of_json({"error": {"message": str(error)}}, 400))
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(answer: Answer, port: int) -> None:
    """Serve on the loopback address until SIGTERM or SIGINT.

    :param answer: called once per request, in the event loop.
    :param port: TCP port.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    clients: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(_serve_client(answer, reader, writer))
        clients.add(task)
        task.add_done_callback(clients.discard)

    server = await asyncio.start_server(connected, LOOPBACK, port, backlog=512)
    print(f"serving on {LOOPBACK}:{port}", flush=True)
    await stopped.wait()
    server.close()
    for task in list(clients):
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
