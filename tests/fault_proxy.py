"""
A real HTTP proxy on a real port that does to requests what networks and servers do on bad days.

Faults are told beforehand and used up in order; what no fault wants is forwarded as it is.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: As every header that concerns one connection only.
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}
FOREVER = 1 << 30


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    size: int


@dataclass(frozen=True)
class Reply:
    """One reply as it came from behind."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class Fault:
    """
    Do something to the requests of a method whose path holds a text.

    :param times: to how many of them.
    :param skip: how many to let pass first.
    :param before: given the handler and the request, before anything is forwarded; ``True``: it has dealt with it.
    :param after: given the handler and the reply; ``True``: it has dealt with it.
    :param without: request headers that are not forwarded.
    """

    method: str
    path: str = ""
    times: int = 1
    skip: int = 0
    before: Callable[[Handler, Request], bool] | None = None
    after: Callable[[Handler, Reply], bool] | None = None
    without: frozenset[str] = field(default_factory=frozenset)


def answer(status: int, code: str, *, forward: bool = True) -> dict[str, Any]:
    """Answer with an S3 error; by default after the server has carried the request out."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()

    def speak(handler: Handler, _: object) -> bool:
        handler.reply(Reply(status, [("Content-Type", "application/xml")], body))
        return True

    return {"after": speak} if forward else {"before": speak}


def page(status: int) -> dict[str, Any]:
    """Answer with a page of HTML, as a balancer in front of a server that is gone does."""

    def speak(handler: Handler, _: object) -> bool:
        handler.reply(Reply(status, [("Content-Type", "text/html")], b"<html><body>Bad Gateway" + b"." * 5000))
        return True

    return {"before": speak}


def cut(handler: Handler, _: object) -> bool:
    """Close the connection instead of answering."""
    handler.cut()
    return True


def truncated(keep: int) -> Callable[[Handler, Reply], bool]:
    """Announce the whole body, send its first bytes and close."""

    def send(handler: Handler, reply: Reply) -> bool:
        handler.reply(reply, send=reply.body[:keep])
        handler.cut()
        return True

    return send


def changed(change: Callable[[bytes], bytes]) -> Callable[[Handler, Reply], bool]:
    """Send another body, with the length that fits it."""

    def send(handler: Handler, reply: Reply) -> bool:
        handler.reply(Reply(reply.status, reply.headers, change(reply.body)))
        return True

    return send


def flip(body: bytes) -> bytes:
    """Flip a bit in the middle."""
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


class Handler(BaseHTTPRequestHandler):
    """Read a request whole, forward it, pass the reply on."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_any(self) -> None:
        """Serve one request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, len(body))
        fault = self.server.proxy.take(request)
        if fault is not None and fault.before is not None and fault.before(self, request):
            return
        reply = self._forward(request, body, fault.without if fault is not None else frozenset())
        if fault is None or fault.after is None or not fault.after(self, reply):
            self.reply(reply)

    def reply(self, reply: Reply, *, send: bytes | None = None) -> None:
        """Send a reply; ``send``: other bytes than its body, under its body's length."""
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            if name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        length = len(reply.body)
        if self.command == "HEAD":
            length = int(next((value for name, value in reply.headers if name.lower() == "content-length"), "0"))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body if send is None else send)
        self.wfile.flush()

    def cut(self) -> None:
        """Close the connection now."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _forward(self, request: Request, body: bytes, without: frozenset[str]) -> Reply:
        connection = http.client.HTTPConnection(self.server.proxy.upstream, timeout=60)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in without:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            return Reply(response.status, response.getheaders(), response.read())
        finally:
            connection.close()


for _method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
    setattr(Handler, f"do_{_method}", Handler.handle_any)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    proxy: FaultProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away is what the tests are about."""


class FaultProxy:
    """
    Stand between a client and a server.

    :param upstream: ``host:port`` of the server.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.requests: list[Request] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.proxy = self
        self.endpoint = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def add(self, fault: Fault) -> None:
        """Do this to what comes, after the faults added before are used up for a request."""
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        """Forward everything from now on."""
        with self._lock:
            self._faults.clear()

    def seen(self, method: str, path: str = "") -> list[Request]:
        """Give the requests of a method whose path holds a text."""
        with self._lock:
            return [each for each in self.requests if each.method == method and path in each.path]

    def take(self, request: Request) -> Fault | None:
        """Note a request and give the fault that is due."""
        with self._lock:
            self.requests.append(request)
            for fault in self._faults:
                if fault.method != request.method or fault.path not in request.path or fault.times <= 0:
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    def speak_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS to those who connect from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """Run a proxy for the length of a block."""
    proxy = FaultProxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
