"""A TCP proxy that does to streams what networks do: holds them back, drips, is cut. Knows just enough of HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Mode = Literal["plain", "held", "drip"]

#: Bytes read at once.
CHUNK = 65_536

#: Seconds for a byte of a dripping answer: slower than any reader would like, quick enough for a test.
DRIP = 0.0005


class RoughProxy:
    """
    Stand before a server, one thread for each direction of a connection.

    :param port: the server's.
    :param mode: ``held``: an answer is passed on once it has ended, as by one that buffers; ``drip``: byte by byte.
    """

    def __init__(self, port: int, mode: Mode = "plain") -> None:
        self.mode: Mode = mode
        self.accepted = 0
        self._to = port
        self._down = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, down: bool = False) -> None:
        """Break all connections; with ``down`` refuse new ones, too."""
        self._down = down
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _close(*pair)

    def up(self) -> None:
        """Let connections through again."""
        self._down = False

    def close(self) -> None:
        self.cut(down=True)
        _close(self._listening)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                if self._down:
                    raise OSError("down")
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                _close(near)
                continue
            with self._lock:
                self._pairs.add((near, far))
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
            threading.Thread(target=self._back, args=(far, near), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while part := source.recv(CHUNK):
                if self.mode == "held":
                    # So that the end of an answer is the end of its connection.
                    part = part.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
                target.sendall(part)
        except OSError:
            pass
        if self.mode != "held":
            _close(source, target)

    def _back(self, source: socket.socket, target: socket.socket) -> None:
        held = bytearray()
        never = threading.Event()
        try:
            while part := source.recv(CHUNK):
                if self.mode == "held":
                    held += part
                elif self.mode == "drip":
                    for byte in part:
                        target.sendall(bytes([byte]))
                        never.wait(DRIP)
                else:
                    target.sendall(part)
            target.sendall(held)
        except OSError:
            pass
        _close(source, target)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@contextmanager
def rough(port: int, mode: Mode = "plain") -> Iterator[RoughProxy]:
    """Give a proxy before a port."""
    made = RoughProxy(port, mode)
    try:
        yield made
    finally:
        made.close()
