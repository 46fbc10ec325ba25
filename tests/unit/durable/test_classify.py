"""What proves that nothing was applied, what takes the proof away, and what proves nothing."""

from __future__ import annotations

import asyncio
import errno
import http.client
import itertools
import smtplib
import socket
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_aiflow.durable.classify import LONGEST_RETRY_AFTER, Classified, classify, retry_after_seconds
from airflow_aiflow.exceptions import EffectNotAppliedError

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")


class CrmError(Exception):
    """What a client of some vendor raises for everything."""


def raised_from(error: BaseException, cause: BaseException | None) -> BaseException:
    """Raise ``error from cause`` and give it back."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def raised_while(error: BaseException, handling: BaseException) -> BaseException:
    """Raise an error while another one is being handled, and give it back."""
    try:
        try:
            raise handling
        except BaseException:
            raise error  # noqa: B904
    except BaseException as caught:
        return caught


def foreign(module: str, name: str, bases: tuple[type, ...] = (Exception,), **attributes: Any) -> BaseException:
    """Make an exception as another package would."""
    cls = type(name, bases, {"__module__": module})
    error: BaseException = cls()
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error


def http_error(status: int, headers: dict[str, str] | None = None, **more: Any) -> BaseException:
    """Make what a client raises for an answer."""
    response = SimpleNamespace(status_code=status, headers=headers or {}, history=[])
    return foreign("httpx", "HTTPStatusError", response=response, **more)


NOT_APPLIED: list[BaseException] = [
    ConnectionRefusedError(),
    OSError(errno.ECONNREFUSED, "x"),
    socket.gaierror(-2, "x"),
    ssl.SSLCertVerificationError(1, "x"),
    urllib.error.URLError(REFUSED),
    foreign("requests.exceptions", "ConnectTimeout"),
    foreign("requests.exceptions", "MissingSchema"),
    foreign("urllib3.exceptions", "NameResolutionError"),
    foreign("httpx", "ConnectTimeout"),
    foreign("httpx2", "ConnectTimeout"),
    foreign("httpcore2", "PoolTimeout"),
    foreign("mine", "MyTimeout", (type(foreign("httpx", "ConnectTimeout")),)),
    foreign("psycopg.errors", "ConnectionTimeout"),
    foreign("psycopg", "OperationalError", sqlstate="08001"),
    foreign("asyncpg.exceptions", "CannotConnectNowError", sqlstate="57P03"),
    smtplib.SMTPRecipientsRefused({}),
    smtplib.SMTPAuthenticationError(535, b"x"),
    smtplib.SMTPDataError(554, b"x"),
    http_error(404),
    foreign("openai", "NotFoundError", status_code=404),
    urllib.error.HTTPError("u", 404, "x", Message(), None),
    raised_from(CrmError(), REFUSED),
    raised_from(RuntimeError(), raised_from(CrmError(), http_error(422))),
    raised_from(foreign("httpx", "ConnectError"), OSError(errno.EHOSTUNREACH, "x")),
    CrmError("wrapped", REFUSED),
    foreign("sqlalchemy.exc", "OperationalError", orig=foreign("psycopg2", "OperationalError", pgcode="08001")),
    ExceptionGroup("all", [REFUSED, socket.gaierror()]),
    EffectNotAppliedError(),
    raised_from(CrmError(), EffectNotAppliedError()),
    raised_while(ConnectionRefusedError(), socket.gaierror()),
    raised_while(foreign("httpx", "ConnectTimeout"), asyncio.CancelledError()),
]

UNKNOWN: list[BaseException] = [
    Exception(),
    ValueError("x"),
    KeyError("x"),
    CrmError("connection refused"),
    TimeoutError(),
    ConnectionResetError(),
    BrokenPipeError(),
    OSError(errno.EHOSTUNREACH, "x"),
    OSError("x"),
    http.client.RemoteDisconnected("x"),
    http.client.IncompleteRead(b""),
    urllib.error.URLError(TimeoutError()),
    urllib.error.URLError("x"),
    ssl.SSLEOFError(8, "x"),
    smtplib.SMTPServerDisconnected("please run connect() first"),
    smtplib.SMTPDataError(421, b"x"),
    smtplib.SMTPResponseException(550, b"x"),
    foreign("requests.exceptions", "ConnectionError"),
    foreign("requests.exceptions", "ReadTimeout"),
    foreign("httpx", "ConnectError"),
    foreign("httpx2", "RemoteProtocolError"),
    foreign("tenacity", "RetryError"),
    foreign("mine", "ConnectTimeout"),
    foreign("mine.httpx", "ConnectTimeout"),
    foreign("psycopg", "OperationalError"),
    foreign("psycopg.errors", "UniqueViolation", sqlstate="23505"),
    foreign("psycopg.errors", "AdminShutdown", sqlstate="57P01"),
    foreign("openai", "APIConnectionError"),
    http_error(408),
    http_error(409),
    http_error(425),
    http_error(500),
    http_error(502),
    http_error(302),
    http_error(200),
    foreign("mine", "NoStatus", status_code=True),
    foreign("mine", "NoStatus", status_code="404"),
    foreign("mine", "NoStatus", status_code=4040),
    foreign("mine", "NoStatus", code=404),
    type("ClassLevel", (Exception,), {"status_code": 404})(),
    raised_from(CrmError(), TimeoutError()),
    raised_from(foreign("httpx", "ReadTimeout"), REFUSED),
    raised_from(CrmError("x", TimeoutError()), REFUSED),
    ExceptionGroup("some", [REFUSED, TimeoutError()]),
    ExceptionGroup("some", [REFUSED, ExceptionGroup("inner", [ValueError()])]),
    KeyboardInterrupt(),
    SystemExit(404),
    asyncio.CancelledError(),
    raised_from(KeyboardInterrupt(), REFUSED),
    # a second thing was sent while the first one's failure was being handled
    raised_while(ConnectionRefusedError(), TimeoutError()),
    raised_while(ConnectionRefusedError(), http_error(500)),
    raised_while(http_error(404), foreign("httpx", "ReadTimeout")),
    raised_while(raised_from(CrmError(), ConnectionRefusedError()), TimeoutError()),
    raised_from(CrmError(), raised_while(ConnectionRefusedError(), TimeoutError())),
    raised_while(ConnectionRefusedError(), raised_while(socket.gaierror(), TimeoutError())),
    # something was refused first, and what came then does not say
    raised_while(CrmError(), REFUSED),
    raised_while(RuntimeError("backup failed too"), http_error(404)),
]


@pytest.mark.parametrize("error", NOT_APPLIED, ids=repr)
def test_proved(error: BaseException) -> None:
    assert classify(error).kind == "not_applied", classify(error)


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_not_proved(error: BaseException) -> None:
    verdict = classify(error)
    assert (verdict.kind, verdict.retry_after) == ("unknown", None), verdict


@pytest.mark.parametrize("bad", [TimeoutError, lambda: http_error(500)])
@pytest.mark.parametrize("good", [ConnectionRefusedError, socket.gaierror])
def test_the_worst_cause_decides_in_any_order(bad: Any, good: Any) -> None:
    for causes in itertools.permutations([bad(), good()]):
        assert classify(CrmError(*causes)).kind == "unknown"
        assert classify(ExceptionGroup("x", causes)).kind == "unknown"
        assert classify(raised_from(CrmError(causes[0]), causes[1])).kind == "unknown"


def test_the_authors_word_counts_whatever_led_to_it() -> None:
    for error in (
        EffectNotAppliedError(retry_after=5),
        raised_while(EffectNotAppliedError(retry_after=5), TimeoutError()),
        raised_from(EffectNotAppliedError(retry_after=5), TimeoutError()),
        raised_from(CrmError(), raised_from(EffectNotAppliedError(retry_after=5), TimeoutError())),
    ):
        assert classify(error) == Classified("not_applied", 5.0, classify(error).why)
    for given_one, kept in ((-1, 0.0), (10**9, LONGEST_RETRY_AFTER), (float("nan"), None), (float("inf"), None)):
        assert classify(EffectNotAppliedError(retry_after=given_one)).retry_after == kept
    assert classify(raised_while(CrmError(), EffectNotAppliedError())).kind == "unknown"
    assert classify(raised_from(TimeoutError(), EffectNotAppliedError())).kind == "unknown"


def test_suppressed_context_is_not_asked() -> None:
    try:
        try:
            raise KeyError("cache")
        except KeyError:
            raise ConnectionRefusedError from None
    except ConnectionRefusedError as error:
        found = error
    assert classify(found).kind == "not_applied"


def test_what_was_handled_before_the_call_is_left_out() -> None:
    outside = TimeoutError("of another call")
    inside = raised_while(ConnectionRefusedError(), outside)
    assert classify(inside).kind == "unknown"
    assert classify(inside, handling=outside).kind == "not_applied"
    assert classify(inside, handling=TimeoutError()).kind == "unknown"
    assert classify(outside, handling=outside).kind == "unknown"


def test_rings_and_endless_chains_end() -> None:
    one, two = CrmError("one"), CrmError("two")
    one.__cause__, two.__cause__ = two, one
    assert classify(one).kind == "unknown"
    itself = CrmError()
    itself.args = (itself,)
    assert classify(itself).kind == "unknown"
    ring = CrmError()
    inner = raised_from(CrmError(), REFUSED)
    ring.__cause__ = inner
    inner.args = (ring,)
    assert classify(ring).kind == "not_applied"
    chain: BaseException = ConnectionRefusedError()
    for _ in range(100_000):
        link = CrmError()
        link.__cause__ = chain
        chain = link
    verdict = classify(chain)
    assert verdict.kind == "unknown"
    wide = CrmError(*[ConnectionRefusedError() for _ in range(1000)])
    assert classify(wide).kind == "unknown"
    while chain.__cause__ is not None:
        chain = chain.__cause__


def test_an_exception_that_can_not_be_read_proves_nothing() -> None:
    class Broken(CrmError):
        @property
        def response(self) -> Any:
            raise RuntimeError("closed")

    verdict = classify(raised_from(Broken(), REFUSED))
    assert verdict.kind == "unknown"
    assert "can't be read: RuntimeError" in verdict.why


def test_why_names_classes_and_no_content() -> None:
    error = raised_from(CrmError("https://user:hush@crm"), ConnectionRefusedError("hush"))
    assert classify(error).why == f"ConnectionRefusedError, under {__name__.partition('.')[0]}.CrmError"
    assert "hush" not in classify(foreign("httpx", "ReadTimeout", args=("hush",))).why
    assert classify(http_error(404)).why == "HTTP 404 (httpx.HTTPStatusError)"


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", range(100, 600))
def test_every_status(status: int) -> None:
    verdict = classify(http_error(status, {"Retry-After": "3"}))
    if status in (429, 503):
        expected = "rejected"
    elif 400 <= status < 500 and status not in (408, 409, 425):
        expected = "not_applied"
    else:
        expected = "unknown"
    assert verdict.kind == expected
    assert verdict.retry_after == (3.0 if expected == "rejected" else None)


def test_an_answer_after_a_redirect_is_unknown() -> None:
    response = SimpleNamespace(status_code=404, headers={}, history=[object()])
    assert classify(foreign("requests", "HTTPError", response=response)).kind == "unknown"
    assert classify(foreign("aiohttp", "ClientResponseError", status=404, headers={}, history=(1,))).kind == "unknown"
    assert classify(foreign("aiohttp", "ClientResponseError", status=404, headers={}, history=())).kind == "not_applied"


def test_the_wait_is_found_in_the_answer_below() -> None:
    answer = http_error(429, {"retry-after": "7"})
    outer = raised_from(foreign("pydantic_ai.exceptions", "ModelHTTPError", status_code=429), answer)
    assert classify(outer).retry_after == 7.0
    outer = raised_from(foreign("pydantic_ai.exceptions", "ModelHTTPError", status_code=503), answer)
    assert (classify(outer).kind, classify(outer).retry_after) == ("rejected", 7.0)
    unrelated = CrmError(http_error(429, {"Retry-After": "9"}), http_error(429))
    assert classify(unrelated).kind == "rejected"


NOW = datetime(2026, 11, 29, 18, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("-5", 0.0),
        ("3600", 3600.0),
        ("3601", 3600.0),
        ("1" + "0" * 300, 3600.0),
        ("1" + "0" * 5000, None),
        ("nan", None),
        ("inf", None),
        ("-inf", None),
        ("", None),
        ("soon", None),
        ("7 seconds", None),
        ("\x00", None),
        ("٣", 3.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        (format_datetime(NOW + timedelta(days=9), usegmt=True), 3600.0),
        ("Sun, 29 Nov 2026 19:30:00 +0100", 1800.0),
        ("Sun, 29 Nov 2026 18:01:00 -0000", 60.0),
        ("Sun, 99 Nov 2026 18:01:00 GMT", None),
        ("Sun, 29 Nov 99999 18:01:00 GMT", None),
    ],
    ids=lambda one: str(one)[:30],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after_seconds(value, format_datetime(NOW, usegmt=True)) == seconds


def test_a_date_without_the_targets_clock_counts_against_ours() -> None:
    value = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    assert 500 < (retry_after_seconds(value) or 0) <= 600
    assert 500 < (retry_after_seconds(value, "no date") or 0) <= 600


@given(st.text() | st.from_regex(r"[0-9.eE+-]{1,30}") | st.datetimes().map(str))
def test_any_header_gives_a_wait_that_makes_sense(value: str) -> None:
    found = retry_after_seconds(value, value)
    assert found is None or 0 <= found <= LONGEST_RETRY_AFTER
