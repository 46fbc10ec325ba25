"""Targets that misbehave, on real sockets of the loopback interface."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[socket.socket], None]


def free_port() -> int:
    """Give a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def target(*answers: Answer) -> Iterator[int]:
    """
    Serve connections one after the other, each in the next way.

    :param answers: what to do with each connection; the last one goes on for ever, ``stop`` closes the port.
    :return: the port.
    """
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    open_ones: list[socket.socket] = []

    def serve() -> None:
        waiting = list(answers)
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_ones.append(connection)
            answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if waiting[0] is stop:
                listener.close()
            with suppress(OSError):
                answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        # A plain close does not wake a thread that waits in accept().
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in open_ones:
            connection.close()
        thread.join(10)


def stop(connection: socket.socket) -> None:
    """Close the port as soon as the one before this has been accepted."""
    raise AssertionError("never served")


def read_request(connection: socket.socket) -> bytes:
    """Read a whole HTTP request, its body included."""
    read = b""
    while b"\r\n\r\n" not in read:
        chunk = connection.recv(65536)
        if not chunk:
            return read
        read += chunk
    head, _, body = read.partition(b"\r\n\r\n")
    sizes = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    while sizes and len(body) < int(sizes[0]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def cut(connection: socket.socket) -> None:
    """Take the request and hang up without a word: it may have been applied."""
    read_request(connection)
    connection.close()


def reset(connection: socket.socket) -> None:
    """Take the request and reset the connection."""
    read_request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def silent(connection: socket.socket) -> None:
    """Take the request and never answer."""
    read_request(connection)


def answering(status: int, body: str = "{}", *, size: int | None = None, **headers: str) -> Answer:
    """
    Answer a request.

    :param status: the status code.
    :param size: what Content-Length says; ``None``: the truth.
    :param headers: ``_`` stands for ``-``.
    """

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body) if size is None else size}"]
        given = {"Content_Type": "application/json", "Connection": "close"} | headers
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        connection.close()

    return answer


@contextmanager
def never_accepting() -> Iterator[int]:
    """Listen with a full queue, so that connecting takes for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers: list[socket.socket] = []
        try:
            for _ in range(64):
                filler = socket.socket()
                filler.setblocking(False)
                fillers.append(filler)
                filler.connect_ex(listener.getsockname())
                if not select.select([], [filler], [], 0.2)[1]:
                    break
            else:
                raise AssertionError("this system's queue is never full")
            yield int(listener.getsockname()[1])
        finally:
            for filler in fillers:
                filler.close()


def mail_server(**replies: str) -> Answer:
    """
    Speak SMTP as far as the replies go.

    :param replies: command (``greeting``, ``ehlo``, ``auth``, ``mail``, ``rcpt``, ``data``, ``body``, ``quit``) ->
        reply; ``cut`` hangs up.
    """
    usual = {
        "greeting": "220 ready",
        "ehlo": "250-here\r\n250 AUTH PLAIN LOGIN",
        "auth": "235 ok",
        "mail": "250 ok",
        "rcpt": "250 ok",
        "data": "354 go on",
        "body": "250 queued",
        "rset": "250 ok",
        "quit": "221 bye",
    } | replies

    def answer(connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        command = "greeting"
        while usual[command] != "cut":
            connection.sendall(usual[command].encode() + b"\r\n")
            if command == "data" and usual["data"].startswith("354"):
                while stream.readline() not in (b".\r\n", b""):
                    pass
                command = "body"
                continue
            line = stream.readline()
            if not line or command == "quit":
                break
            command = line[:4].decode().strip().lower()
        stream.close()
        connection.close()

    return answer
