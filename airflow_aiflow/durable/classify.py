"""
Say what an exception out of an effect's call means for the effect: surely not applied, rejected for now, or unknown.

Wrong in one direction is a double effect, wrong in the other is a question to a person. So "not applied" must be
proved: by a class that can only be raised before a request is sent, by an answer that refuses it, or by the author's
word. The outermost class decides nothing where it wraps others: a refused connection and a cut after acceptance reach
the author as one ``requests.ConnectionError`` or ``openai.APIConnectionError``.

The proof must lie on the chain of causes (``raise ... from``, ``.reason``, an exception among the arguments). An
exception that was merely being handled meanwhile (``__context__``) proves nothing, since the code may have sent
something else since; but where it may have been sent itself, it takes the proof away. Airflow's own hooks, which wrap
without ``from``, are the exception.

Classes are told by the names of their package and class, so that no client is imported here.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from airflow_aiflow.durable.hidden_attempts import hidden_attempt
from airflow_aiflow.exceptions import EffectNotAppliedError

Kind = Literal["not_applied", "rejected", "unknown"]
_ORDER: tuple[Kind, ...] = ("not_applied", "rejected", "unknown")

#: Longest wait that a target may ask for, in seconds: an hour. Longer ones are more often a mistake (milliseconds, a
#: wrong clock) than a plan, and asking again after an hour costs little.
LONGEST_RETRY_AFTER = 3600.0

#: Most exceptions looked at: real chains have fewer than ten links, and what has more proves nothing.
MOST_LINKS = 64

#: Answers of the range 400 to 499 after which the request may have been, or may yet be, applied: time-out, conflict (it
#: may be our own earlier request), too early, too many.
_UNCERTAIN_STATUS = frozenset({408, 409, 425, 429})

#: What is raised only before anything is sent, or says that nothing was accepted: package -> classes.
_NOT_APPLIED: dict[str, frozenset[str]] = {
    "builtins": frozenset({"ConnectionRefusedError"}),
    "socket": frozenset({"gaierror", "herror"}),
    "ssl": frozenset({"SSLCertVerificationError"}),
    "requests": frozenset({"ConnectTimeout", "MissingSchema", "InvalidSchema", "InvalidURL"}),
    "urllib3": frozenset({"NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "LocationValueError"}),
    "httpx": frozenset({"ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"}),
    "httpcore": frozenset({"ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"}),
    "aiohttp": frozenset({"ConnectionTimeoutError", "ClientConnectorDNSError", "InvalidURL"}),
    "smtplib": frozenset(
        {
            "SMTPRecipientsRefused",
            "SMTPSenderRefused",
            "SMTPAuthenticationError",
            "SMTPConnectError",
            "SMTPHeloError",
            "SMTPNotSupportedError",
        }
    ),
    "psycopg": frozenset({"ConnectionTimeout"}),
    "psycopg_pool": frozenset({"PoolTimeout"}),
}

#: What is raised after something may have been sent, whatever caused it: package -> classes.
_UNKNOWN: dict[str, frozenset[str]] = {
    "builtins": frozenset({"ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError", "TimeoutError"}),
    "http": frozenset({"HTTPException"}),
    "requests": frozenset({"ReadTimeout", "ChunkedEncodingError", "RetryError", "TooManyRedirects"}),
    "urllib3": frozenset({"ProtocolError", "ReadTimeoutError", "ResponseError"}),
    "httpx": frozenset({"ReadTimeout", "WriteTimeout", "ReadError", "WriteError", "RemoteProtocolError"}),
    "httpcore": frozenset({"ReadTimeout", "WriteTimeout", "ReadError", "WriteError", "RemoteProtocolError"}),
    "aiohttp": frozenset({"ServerDisconnectedError", "ServerTimeoutError", "ClientPayloadError"}),
    "smtplib": frozenset({"SMTPServerDisconnected"}),
    "tenacity": frozenset({"RetryError"}),
}

#: What is raised while a connection is made, an encrypted one included: the system's own error inside it decides.
_CONNECTING: dict[str, frozenset[str]] = {
    "httpx": frozenset({"ConnectError"}),
    "httpcore": frozenset({"ConnectError"}),
    "aiohttp": frozenset({"ClientConnectorError"}),
}
_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})

#: Forks that kept the names of their classes.
_ALSO_KNOWN_AS = {"httpx2": "httpx", "httpcore2": "httpcore"}

#: SQLSTATEs with which a PostgreSQL server turns a connection down, before any statement.
_TURNED_DOWN = frozenset({"08001", "08004", "28000", "28P01", "3D000", "53300", "57P03"})

#: How psycopg's messages begin when there is no connection yet; the rest is the server's, in its language.
_NOT_CONNECTED = (
    "connection failed:",
    "connection is bad:",
    "failed to resolve host",
    "connection to server at",
    "Multiple connection attempts failed",
)

#: Whose code wraps an exception without ``from`` and does nothing in between.
_WRAPS_WITHOUT_CAUSE = frozenset({"airflow"})

#: How a deadline looks from the inside; it says nothing about requests.
_NEUTRAL = frozenset({"CancelledError"})


@dataclass(frozen=True, slots=True)
class Classified:
    """
    Hold the verdict.

    :param kind: ``not_applied``: may be tried again; ``rejected``: may be tried again later; ``unknown``: may have been
        applied.
    :param retry_after: seconds to wait, where the target or the author said so.
    :param why: what decided, for people; holds no content of the request or the answer.
    """

    kind: Kind
    retry_after: float | None
    why: str


def classify(error: BaseException, *, handling: BaseException | None = None) -> Classified:
    """
    Judge an exception.

    :param error: what the effect's function raised.
    :param handling: what was being handled when the call began (``sys.exception()``); it is none of the call's.
    """
    try:
        return _Judge(handling).verdict(error)
    except Exception as trouble:
        # An exception is any object: its properties may raise. What can't be read proves nothing.
        return Classified("unknown", None, f"{_name(error)} can't be read: {_name(trouble)}")


class _Judge:
    def __init__(self, handling: BaseException | None) -> None:
        self._handling = handling
        #: By identity: what was judged, and ``None`` for what is being judged (chains may be rings).
        self._judged: dict[int, Classified | None] = {}
        #: Keeps exceptions alive that are made on the fly, so that no other one takes their identity.
        self._kept: list[BaseException] = []

    def verdict(self, error: BaseException) -> Classified:
        """Judge an exception with everything around it."""
        begin = len(self._kept)
        verdict = self._by_causes(error)
        chain = self._kept[begin:]
        if verdict.kind == "unknown":
            return verdict
        for link in chain:
            # An earlier error came through the same frames, so it is judged by its causes alone.
            hidden = hidden_attempt(link, lambda earlier: _Judge(None)._by_causes(earlier).kind != "unknown")
            if hidden is not None:
                return Classified("unknown", None, f"{verdict.why}, but {hidden}")
        for link in chain:
            beside = _handled_meanwhile(link)
            if beside is None or id(beside) in self._judged or beside is self._handling:
                continue
            if type(beside).__name__ not in _NEUTRAL and self.verdict(beside).kind == "unknown":
                return Classified("unknown", None, f"{verdict.why}, but raised while handling {_name(beside)}")
        return verdict

    def _by_causes(self, error: BaseException) -> Classified:
        """Judge by an exception itself, else by what it names as its causes; the worst of them decides."""
        word = error.__cause__ if tells_model(error) else error
        if isinstance(word, EffectNotAppliedError):
            # The author's word, whatever led to it.
            return Classified("not_applied", _seconds(word.retry_after), "the function said so")
        if len(self._kept) >= MOST_LINKS:
            return Classified("unknown", None, f"more than {MOST_LINKS} exceptions hang together")
        begin = len(self._kept)
        self._kept.append(error)
        self._judged[id(error)] = None
        causes: list[Classified] = []
        for cause in _causes(error):
            found = self._judged[id(cause)] if id(cause) in self._judged else self._by_causes(cause)
            if found is not None:
                causes.append(found)
        verdict = _by_itself(error, self._kept[begin:])
        if verdict is None and causes:
            worst = max(causes, key=lambda one: _ORDER.index(one.kind))
            verdict = Classified(worst.kind, worst.retry_after, f"{worst.why}, under {_name(error)}")
        elif verdict is None:
            verdict = Classified("unknown", None, f"{_name(error)} does not say whether a request was sent")
        self._judged[id(error)] = verdict
        return verdict


def tells_model(error: BaseException) -> bool:
    """
    Say whether an exception is what a tool has its model told, in place of a result.

    :param error: out of an effect's function.
    """
    words = ("ModelRetry", "ToolFailed")
    return any(cls.__name__ in words and _package(cls) == "pydantic_ai" for cls in type(error).__mro__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what an exception names as its causes."""
    candidates = [error.__cause__, *error.args, *getattr(error, "exceptions", ())]
    candidates += [getattr(error, name, None) for name in ("reason", "os_error", "orig")]
    if error.__cause__ is None and _wrapped_by_a_known_hook(error):
        candidates.append(error.__context__)
    found: set[int] = {id(error)}
    for one in candidates:
        if isinstance(one, BaseException) and id(one) not in found:
            found.add(id(one))
            yield one


def _handled_meanwhile(error: BaseException) -> BaseException | None:
    suppressed = error.__suppress_context__ and error.__cause__ is None
    return None if suppressed else error.__context__


def _wrapped_by_a_known_hook(error: BaseException) -> bool:
    """Say whether an exception was raised in the very frame that caught its context, in code that only wraps."""
    raised, inner = error.__traceback__, error.__context__
    if raised is None or inner is None or inner.__traceback__ is None:
        return False
    while raised.tb_next is not None:
        raised = raised.tb_next
    frame = raised.tb_frame
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return frame is inner.__traceback__.tb_frame and package in _WRAPS_WITHOUT_CAUSE


def _by_itself(error: BaseException, below: list[BaseException]) -> Classified | None:
    """Judge an exception by what it is, headers by what it wraps too; ``None``: it only wraps others."""
    name = _name(error)
    if not isinstance(error, Exception):
        return Classified("unknown", None, f"{name} interrupted the call")
    status = _status(error)
    if status is not None:
        return _by_status(error, status, _retry_after_of(below))
    if _is_one_of(error, _NOT_APPLIED):
        return Classified("not_applied", None, name)
    if _is_one_of(error, _UNKNOWN):
        return Classified("unknown", None, f"{name} may come after the request was sent")
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return Classified("not_applied", None, f"{name}: connection refused")
    if _is_one_of(error, _CONNECTING):
        inner = [one.errno for one in _causes(error) if isinstance(one, OSError)]
        return Classified("not_applied", None, f"{name}: unreachable") if _UNREACHABLE.intersection(inner) else None
    return _by_mail_server(error) or _by_database(error)


def _by_status(error: Exception, status: int, retry_after: float | None) -> Classified:
    name = f"HTTP {status} ({_name(error)})"
    if getattr(getattr(error, "response", None), "history", None) or getattr(error, "history", None):
        return Classified("unknown", None, f"{name} came after a redirect")
    if status == 429 or (status == 503 and retry_after is not None):
        return Classified("rejected", retry_after, name)
    if 400 <= status < 500 and status not in _UNCERTAIN_STATUS:
        return Classified("not_applied", None, name)
    return Classified("unknown", None, name)


def _by_mail_server(error: Exception) -> Classified | None:
    code = getattr(error, "smtp_code", None)
    if type(error).__name__ != "SMTPDataError" or type(code) is not int:
        return None
    # The server's answer to the message itself. 421 is its farewell, which may come in answer to anything.
    refused = 400 <= code < 600 and code != 421
    return Classified("not_applied" if refused else "unknown", None, f"SMTP {code} ({_name(error)})")


def _by_database(error: Exception) -> Classified | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state in _TURNED_DOWN:
        return Classified("not_applied", None, f"SQLSTATE {state} ({_name(error)})")
    if state is None and _package(type(error)) in {"psycopg", "psycopg2"} and str(error).startswith(_NOT_CONNECTED):
        return Classified("not_applied", None, f"{_name(error)}: no connection")
    return None


def _package(cls: type) -> str:
    package = cls.__module__.partition(".")[0]
    return _ALSO_KNOWN_AS.get(package, package)


def _name(error: BaseException) -> str:
    cls = type(error)
    package = cls.__module__.partition(".")[0]
    return cls.__qualname__ if package == "builtins" else f"{package}.{cls.__qualname__}"


def _is_one_of(error: BaseException, table: dict[str, frozenset[str]]) -> bool:
    """Look a class up by the nearest of its bases that any table knows."""
    for cls in type(error).__mro__:
        package, name = _package(cls), cls.__name__
        if any(name in known.get(package, ()) for known in (_NOT_APPLIED, _UNKNOWN, _CONNECTING)):
            return name in table.get(package, ())
    return False


def _status(error: Exception) -> int | None:
    """Read the status of the answer that an exception is about."""
    # Of the instance: Airflow's exceptions carry a status as a class, meant for its own API.
    own, response = vars(error), getattr(error, "response", None)
    found = own.get("status_code") or getattr(response, "status_code", None) or getattr(response, "status", None)
    if found is None and getattr(error, "headers", None) is not None:
        # aiohttp and the standard library; without headers beside it, a status or code may mean anything.
        found = own.get("status") or own.get("code")
    if not isinstance(found, int) or isinstance(found, bool) or not 100 <= found <= 599:
        return None
    return int(found)


def _retry_after_of(chain: list[BaseException]) -> float | None:
    """Read how long the target wants us to wait, from the first answer among these that says so."""
    for error in chain:
        for holder in (getattr(error, "response", None), error):
            headers = getattr(holder, "headers", None)
            if headers is not None and (value := _header(headers, "retry-after")) is not None:
                return retry_after_seconds(value, _header(headers, "date"))
    return None


def _header(headers: Any, name: str) -> str | None:
    try:
        found = [value for key, value in headers.items() if isinstance(key, str) and key.lower() == name]
    except Exception:
        return None
    return str(found[0]) if found else None


def retry_after_seconds(value: str, date: str | None = None) -> float | None:
    """
    Read a Retry-After header.

    :param value: seconds, or an HTTP date.
    :param date: the answer's own Date header, against which a date is counted: our clock may differ from the target's.
    :return: 0 to 3,600 seconds; ``None``: it says nothing that makes sense.
    """
    text = value.strip()
    try:
        return _seconds(float(text))
    except ValueError:
        pass
    moment = _moment(text)
    if moment is None:
        return None
    now = _moment(date) if date is not None else None
    return _seconds((moment - (now or datetime.now(UTC))).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _seconds(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return min(max(value, 0.0), LONGEST_RETRY_AFTER)
