"""
Tell somebody else's server how a submission ended: to which addresses, signed how, and how often it is tried.

Off until hosts and a secret are configured. What is told names the submission and its end, never its data: whoever
listens asks for the result with rights of his own. Told at least once, each end under one id.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import urlsplit
from uuid import UUID

from airflow_aiflow.durable.submission import SubmissionState
from airflow_aiflow.exceptions import SubmissionRefusedError

#: Characters of an address: what browsers and proxies take.
URL_LIMIT = 2000

#: The only port where the configuration names none.
HTTPS_PORT = 443

#: Characters of a secret: shorter ones can be guessed from one signature.
MIN_SECRET = 32

_URL = re.compile(r"[!-~]+")
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?\.?")

#: Addresses of IPv6 that stand for one of IPv4, which is then what is reached.
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))

#: What ``is_global`` of some Python releases lets through: protocol assignments (a cloud's metadata among them), 6to4
#: relays, site-local addresses.
_INSIDE = (
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv6Network("fec0::/10"),
)


@dataclass(frozen=True, slots=True)
class CallbackTarget:
    """Hold where a callback goes: ``path`` with its query."""

    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class CallbackRules:
    """
    Say to which hosts callbacks may go, and by which secret they are signed.

    :param hosts: names, each with a port where it is not 443; ``*.example.com`` stands for all names below that one.
    :param secret: at least 32 bytes.
    """

    hosts: tuple[str, ...]
    secret: bytes

    def target(self, url: str) -> CallbackTarget:
        """
        Read an address, and refuse what is not allowed.

        :param url: as a client gave it.
        :raises SubmissionRefusedError: with what is wrong.
        """
        if len(url) > URL_LIMIT or not _URL.fullmatch(url):
            raise _refused(f"must be an address of at most {URL_LIMIT} printable ASCII characters")
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower(), parts.port or HTTPS_PORT
        except ValueError as error:
            raise _refused(f"is no address: {error}") from None
        if parts.scheme.lower() != "https":
            raise _refused("must begin with https://")
        if "@" in parts.netloc or parts.fragment:
            raise _refused("must hold neither a user nor a fragment")
        if not _HOST.fullmatch(host):
            raise _refused("must name a host, not an address of one")
        if not any(_fits(host.rstrip("."), port, pattern) for pattern in self.hosts):
            raise _refused("names a host that [aiflow] callback_hosts does not list")
        query = f"?{parts.query}" if parts.query else ""
        return CallbackTarget(host.rstrip("."), port, (parts.path or "/") + query)

    def signature(self, callback_id: UUID, at: int, body: bytes) -> str:
        """
        Sign what is sent.

        :param callback_id: under which the receiver finds a repeat.
        :param at: seconds since 1970, by which the receiver refuses what is old.
        :param body: what is sent.
        """
        return f"t={at},v1={sign(self.secret, callback_id, at, body)}"


def sign(secret: bytes, callback_id: UUID, at: int, body: bytes) -> str:
    """
    Compute a signature: HMAC-SHA-256 over the time, the id and the body, in hexadecimal digits.

    :param secret: shared with the receiver.
    """
    return hmac.new(secret, f"{at}.{callback_id}.".encode() + body, "sha256").hexdigest()


def is_public(address: str) -> bool:
    """
    Say whether an address is one of the public net: nothing inside is reached by a callback.

    :param address: as the resolver gives it.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found.sixtofour or found.teredo or any(found in net for net in _NAT64):
            return False
    if any(found in net for net in _INSIDE if net.version == found.version):
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def _fits(host: str, port: int, pattern: str) -> bool:
    name, _, number = pattern.lower().partition(":")
    if port != (int(number) if number else HTTPS_PORT):
        return False
    return host.endswith(name[1:]) and host != name[2:] if name.startswith("*.") else host == name


def _refused(why: str) -> SubmissionRefusedError:
    return SubmissionRefusedError(f"callback_url {why}", "/callback_url")


@dataclass(frozen=True, slots=True)
class Callback:
    """
    Hold an end that is to be told.

    :param tries: this one among them.
    """

    callback_id: UUID
    submission_id: UUID
    pipeline: str
    state: SubmissionState
    url: str
    tries: int
    ended_at: datetime


class Callbacks(Protocol):
    """Keep what is to be told. Each method is one commit."""

    def due(self, *, limit: int) -> list[Callback]:
        """Take some that are due; who takes them and dies leaves them to the next one, after their back-off."""

    def delivered(self, callback_id: UUID) -> None:
        """Note that the receiver has it."""

    def failed(self, callback_id: UUID, why: str) -> None:
        """Note that the receiver did not take it; after the last try nobody tries any more."""
