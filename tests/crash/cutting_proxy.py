"""
A TCP proxy that cuts connections at their worst moment: the server has done what it was asked, its answer is lost.

It runs in a process of its own, so that whoever forks attempts has no threads of it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
from types import TracebackType
from typing import Self

from airflow_aiflow.runtime.process import die_with_parent
from tests.crash.forks import MOST_OPEN, leave_nothing_to_collect


class CuttingProxy:
    """
    Stand between clients and a server on loopback.

    :param upstream: the server's port; where nobody listens, the client's connection is closed.
    :param share: of the server's answers at which the connection is cut instead.
    :param seed: of the choice.
    """

    def __init__(self, upstream: int, share: float, seed: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = listener.getsockname()[1]
        leave_nothing_to_collect()
        self.pid = os.fork()
        if self.pid == 0:
            die_with_parent()
            keep = listener.fileno()
            os.closerange(3, keep)
            os.closerange(keep + 1, MOST_OPEN)
            _serve(listener, upstream, share, random.Random(seed))
        listener.close()

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _serve(listener: socket.socket, upstream: int, share: float, chance: random.Random) -> None:
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", upstream), timeout=5)
        except OSError:
            client.close()
            continue
        server.settimeout(None)
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_pump, args=(client, server, 0.0, chance), daemon=True).start()
        threading.Thread(target=_pump, args=(server, client, share, chance), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, share: float, chance: random.Random) -> None:
    try:
        while (data := source.recv(65536)) and chance.random() >= share:
            sink.sendall(data)
    except OSError:
        pass
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    source.close()  # the sink is the source of the other pump, which has been woken
