"""
Send callbacks: to public addresses alone, to the very one that was checked, without following anything.

The name is resolved once and the connection goes to what was found, so that a name that changes its address between
check and connection leads nowhere. Proxies of the environment are not asked.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from airflow_aiflow.durable.callback import Callback, CallbackRules, Callbacks, CallbackTarget, is_public
from airflow_aiflow.exceptions import AiflowError, LedgerError

log = logging.getLogger(__name__)

#: Seconds for a connection, or for one answer of the socket.
STEP_SECONDS = 5.0

#: Seconds for the whole of one delivery, however slowly the receiver talks.
WHOLE_SECONDS = 15.0

#: Callbacks of one round: a receiver that hangs must not keep the others for long.
ROUND = 5

#: Characters of a trouble that are kept.
WORDS = 300


class CallbackError(AiflowError):
    """Say why a callback was not taken."""

    retryable = True


def public_addresses(host: str, port: int) -> list[str]:
    """
    Resolve a name.

    :param host: the name.
    :param port: the port.
    :raises CallbackError: if it has no address, or one of them is not public.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CallbackError(f"{host} has no address: {error}") from error
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    inside = [address for address in addresses if not is_public(address)]
    if inside or not addresses:
        raise CallbackError(f"{host} leads to {', '.join(inside) or 'nowhere'}, which is no public address")
    return addresses


@dataclass(frozen=True, slots=True)
class CallbackPost:
    """
    Post over HTTPS.

    :param addresses: resolves and checks.
    :param context: whom to trust.
    :param whole_seconds: for one delivery.
    """

    addresses: Callable[[str, int], Sequence[str]] = public_addresses
    context: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    whole_seconds: float = WHOLE_SECONDS

    def send(self, target: CallbackTarget, body: bytes, headers: dict[str, str]) -> None:
        """
        Send once.

        :raises CallbackError: if the receiver did not take it, or nobody knows.
        """
        connection = _Pinned(target, self.addresses(target.host, target.port)[0], self.context)
        # A receiver that sends a byte now and then would hold us for ever.
        cut = threading.Timer(self.whole_seconds, connection.cut)
        cut.daemon = True
        cut.start()
        try:
            connection.request("POST", target.path, body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CallbackError(f"{target.host} did not answer: {type(error).__name__}: {error}") from error
        finally:
            cut.cancel()
            connection.close()
        if not 200 <= status < 300:
            more = ", and redirects are not followed" if 300 <= status < 400 else ""
            raise CallbackError(f"{target.host} answered {status}{more}")


class _Pinned(http.client.HTTPSConnection):
    """Connect to an address that was checked, and expect the name there."""

    def __init__(self, target: CallbackTarget, address: str, context: ssl.SSLContext) -> None:
        super().__init__(target.host, target.port, timeout=STEP_SECONDS, context=context)
        self._pinned, self._trust = address, context
        self._raw: socket.socket | None = None

    def connect(self) -> None:
        """Connect."""
        self._raw = socket.create_connection((self._pinned, self.port), STEP_SECONDS)
        self.sock = self._trust.wrap_socket(self._raw, server_hostname=self.host)

    def cut(self) -> None:
        """End it, from another thread."""
        for each in (self._raw, self.sock):
            with contextlib.suppress(OSError):
                if each is not None:
                    each.shutdown(socket.SHUT_RDWR)


def deliver_due(callbacks: Callbacks, rules: CallbackRules, post: CallbackPost) -> int:
    """
    Deliver what is due now.

    :param callbacks: the ledger's.
    :param rules: the deployment's.
    :param post: sends.
    :return: how many were tried.
    """
    due = callbacks.due(limit=ROUND)
    for one in due:
        try:
            _deliver(one, rules, post)
        except LedgerError:
            raise
        except AiflowError as error:
            log.warning("aiflow: callback of submission %s, try %d: %s", one.submission_id, one.tries, error)
            callbacks.failed(one.callback_id, str(error)[:WORDS])
        else:
            callbacks.delivered(one.callback_id)
    return len(due)


def _deliver(one: Callback, rules: CallbackRules, post: CallbackPost) -> None:
    told = {
        "callback_id": str(one.callback_id),
        "submission_id": str(one.submission_id),
        "pipeline": one.pipeline,
        "state": one.state.value,
        "ended_at": one.ended_at.isoformat(),
    }
    body = json.dumps(told).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "airflow-aiflow",
        "Aiflow-Callback-Id": str(one.callback_id),
        "Aiflow-Signature": rules.signature(one.callback_id, int(time.time()), body),
        "Connection": "close",
    }
    # Checked again: the configuration may have changed since.
    post.send(rules.target(one.url), body, headers)
