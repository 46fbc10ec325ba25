"""Find free ports on the loopback address, and say which ones are busy."""

from __future__ import annotations

import errno
import secrets
import socket

from airflow_aiflow.exceptions import StackError

LOOPBACK = "127.0.0.1"
#: Below the range from which kernels take the ports of outgoing connections (32768 on Linux), also after SeaweedFS
#: has added 10,000 for gRPC: a port found free here is not taken by a passing client a moment later.
FIRST_PORT, LAST_PORT = 10240, 22700
#: SeaweedFS opens gRPC this far above each HTTP port.
GRPC_OFFSET = 10000
#: So many random tries: with half of the range busy, all failing has a chance of 2^-200.
TRIES = 200


def is_free(port: int) -> bool:
    """Tell whether a TCP port on the loopback address can be bound now."""
    return _refusal(port) is None


def _refusal(port: int) -> OSError | None:
    """Try to bind a port, and give what the system says against it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error
    return None


def free_port(*, with_grpc: bool = False, avoid: frozenset[int] = frozenset()) -> int:
    """Find a free port.

    :param with_grpc: the port 10,000 above must be free as well.
    :param avoid: ports already promised to others.
    :raises StackError: none was found.
    """
    for _ in range(TRIES):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        wanted = {port, port + GRPC_OFFSET} if with_grpc else {port}
        if not wanted & avoid and all(is_free(each) for each in wanted):
            return port
    raise StackError(f"no free port between {FIRST_PORT} and {LAST_PORT} on {LOOPBACK}: end some local servers")


def require_free(port: int, what: str) -> None:
    """Refuse by name a port that can't be had.

    :param port: the port that was asked for.
    :param what: who wants it, for the message.
    :raises StackError: the port is in use, or this user may not open it.
    """
    refusal = _refusal(port)
    if refusal is None:
        return
    if refusal.errno == errno.EADDRINUSE:
        problem, way_out = "is in use", "end the program that holds it, or"
    else:
        problem, way_out = f"can't be opened ({refusal.strerror})", "give one above 1023, or"
    raise StackError(f"port {port} for {what} {problem} on {LOOPBACK}: {way_out} leave it out and a free one is taken")


def keep_or_find(previous: int | None, *, with_grpc: bool = False) -> int:
    """Give the port of the last start where it is still free, so that addresses survive a restart."""
    if previous is not None and is_free(previous) and (not with_grpc or is_free(previous + GRPC_OFFSET)):
        return previous
    return free_port(with_grpc=with_grpc)
