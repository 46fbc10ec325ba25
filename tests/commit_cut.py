"""A TCP proxy before a PostgreSQL that loses connections over a COMMIT, as networks do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

#: ``lost``: the COMMIT never reaches the server. ``arrives``: it does, and its answer is lost. ``late``: the client is
#: cut off, and the COMMIT stays on its way until it is delivered.
How = Literal["lost", "arrives", "late"]
#: Seconds that a server may take over a COMMIT before the proxy goes on without its answer.
ANSWER = 30


class CommitCut:
    """
    Forward bytes, and cut the first COMMIT that comes after ``cut_next``.

    :param dsn: of the database behind.
    """

    def __init__(self, dsn: str) -> None:
        parts = conninfo_to_dict(dsn)
        self._upstream = (str(parts["host"]), int(str(parts["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=self._listener.getsockname()[1], sslmode="disable")
        self._how: How | None = None
        self.cuts = 0
        self.connections = 0
        self._late: list[tuple[socket.socket, bytes, threading.Event]] = []
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, how: How) -> None:
        """Cut the next COMMIT."""
        self._how = how

    def deliver(self) -> None:
        """Let the COMMIT that is on its way arrive."""
        for server, data, answered in self._late:
            server.sendall(data)
            answered.wait(ANSWER)
            _end(server)
        self._late.clear()

    def close(self) -> None:
        """End everything."""
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(self._upstream)
            self._open += [client, server]
            cut, answered = threading.Event(), threading.Event()
            threading.Thread(target=self._up, args=(client, server, cut, answered), daemon=True).start()
            threading.Thread(target=_down, args=(client, server, cut, answered), daemon=True).start()

    def _up(
        self, client: socket.socket, server: socket.socket, cut: threading.Event, answered: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self._how is not None and b"COMMIT\0" in data:
                    how, self._how = self._how, None
                    self.cuts += 1
                    cut.set()
                    if how == "arrives":
                        server.sendall(data)
                        answered.wait(ANSWER)
                    elif how == "late":
                        self._late.append((server, data, answered))
                        _end(client)
                        return
                    _end(client)
                    break
                server.sendall(data)
            _end(server)


def _down(client: socket.socket, server: socket.socket, cut: threading.Event, answered: threading.Event) -> None:
    """Forward the answers: the only reader of this socket, so that no answer slips past a cut."""
    with suppress(OSError):
        while data := server.recv(65536):
            if cut.is_set():
                answered.set()
                return
            client.sendall(data)
    if not cut.is_set():
        _end(client)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def commit_cut(dsn: str) -> Iterator[CommitCut]:
    """Run a proxy for the length of a block."""
    proxy = CommitCut(dsn)
    try:
        yield proxy
    finally:
        proxy.close()
