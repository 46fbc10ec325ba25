"""
Tell what an S3 server's refusal, or its silence, means, and what to do about it.

Decided by the protocol's error code and status, never by a message's words. A bucket that is missing, keys that are
refused and a server that can't be reached are "can't be read", which is never "is not there".
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final
from xml.etree.ElementTree import ParseError

import urllib3
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from airflow_aiflow.storage.s3_settings import S3Settings

#: What the SDK and what lies under it raise for a request that did not end well. ValueError and ParseError: an answer
#: that is not what the protocol says, and credentials that were not found.
REQUEST_ERRORS: Final = (
    MinioException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ParseError,
    ValueError,
)

#: A server's own words in a message: enough to recognise it, not a page of HTML.
_DETAIL_LIMIT: Final = 200


class Kind(Enum):
    """What to do about a fault."""

    PASSING = "try again"
    DOUBTFUL = "try again a few times: servers answer 400 for a body that was cut on its way, and for a real mistake"
    REFUSED = "new credentials may help"
    ABSENT = "the object, or the upload, is not there"
    TOO_LARGE = "no retry helps"
    FINAL = "a person must change something"


@dataclass(frozen=True, slots=True)
class Fault:
    """Hold what happened: the kind, the protocol's code and the words for people."""

    kind: Kind
    code: str
    detail: str


_BY_CODE: Final = {
    **dict.fromkeys(("NoSuchKey", "NoSuchUpload", "NoSuchVersion"), Kind.ABSENT),
    **dict.fromkeys(("EntityTooLarge", "MaxMessageLengthExceeded", "InvalidObjectSize"), Kind.TOO_LARGE),
    **dict.fromkeys(
        (
            "AccessDenied",
            "AuthorizationHeaderMalformed",
            "ExpiredToken",
            "InvalidAccessKeyId",
            "InvalidSecurity",
            "InvalidToken",
            "SignatureDoesNotMatch",
            "TokenRefreshRequired",
            "UnauthorizedAccess",
        ),
        Kind.REFUSED,
    ),
    **dict.fromkeys(
        ("NoSuchBucket", "InvalidBucketName", "RequestTimeTooSkewed", "MethodNotAllowed", "NotImplemented"), Kind.FINAL
    ),
    **dict.fromkeys(("OperationAborted", "ConditionalRequestConflict", "SlowDown", "InternalError"), Kind.PASSING),
}


def judge(error: BaseException) -> Fault:
    """Classify what a request raised."""
    match error:
        case S3Error():
            code = error.code or "unknown"
            return Fault(_BY_CODE.get(code) or _by_status(error.response.status), code, _short(error.message or ""))
        case ServerError():
            return Fault(_by_status(error.status_code), f"HTTP {error.status_code}", "")
        case InvalidResponseError():
            status = int(getattr(error, "_code", 0))
            return Fault(_by_status(status), f"HTTP {status}", f"not an answer of an S3 server: {_short(str(error))}")
        case urllib3.exceptions.SSLError():
            return Fault(_of_tls(error), "TLS", _short(str(error)))
        case urllib3.exceptions.HTTPError() | http.client.HTTPException() | OSError():
            return Fault(Kind.PASSING, type(error).__name__, _short(str(error)))
        case ParseError():
            return Fault(Kind.PASSING, "malformed", f"not an answer of an S3 server: {_short(str(error))}")
        case _:
            return Fault(Kind.FINAL, type(error).__name__, _short(str(error)))


def explain(fault: Fault, error: BaseException, settings: S3Settings) -> str:
    """Say for people what a fault means and the way out."""
    said = f"{fault.code}: {fault.detail}" if fault.detail else fault.code
    if fault.code == "NoSuchBucket":
        return missing_bucket(settings)
    if fault.code == "RequestTimeTooSkewed":
        return f"{settings.address} refuses requests because the clocks differ{_skew(error)}: set this machine's clock"
    if fault.code == "TLS" and fault.kind is Kind.FINAL:
        return (
            f"{settings.address} can't be spoken to by TLS ({said}): if it speaks plain HTTP, set 'secure' to false in "
            f"{settings.origin}; if its certificate is your own, name its authority's file in 'verify'"
        )
    if fault.kind is Kind.REFUSED:
        return (
            f"{settings.address} refuses the credentials of {settings.origin}, or what they may do in bucket "
            f"{settings.bucket!r} ({said}): correct login and password there, or the policy of that access key"
        )
    if fault.kind in {Kind.PASSING, Kind.DOUBTFUL}:
        return f"{settings.address} can't serve now ({said}): see whether the server runs; a retry may help"
    if fault.kind is Kind.TOO_LARGE:
        return (
            f"{settings.address} takes no object of this size ({said}): no retry helps, store less or raise its limit"
        )
    return f"{settings.address} can't do it ({said}): check {settings.origin}"


def missing_bucket(settings: S3Settings) -> str:
    """Say for people that the bucket is missing and the way out."""
    return (
        f"there is no bucket {settings.bucket!r} at {settings.address}: create it, or set the right one in "
        f"{settings.origin} (field 'bucket')"
    )


def _by_status(status: int) -> Kind:
    if status in {408, 425, 429} or (status >= 500 and status != 501):
        return Kind.PASSING
    if status == 400:
        return Kind.DOUBTFUL
    if status in {401, 403}:
        return Kind.REFUSED
    if status == 413:
        return Kind.TOO_LARGE
    return Kind.FINAL


def _of_tls(error: BaseException) -> Kind:
    """Tell a certificate or a server without TLS, which stay, from a handshake that was cut, which passes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return Kind.FINAL
        if isinstance(seen, ssl.SSLError) and seen.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
            return Kind.FINAL
        seen = seen.__cause__ or seen.__context__ or next((a for a in seen.args if isinstance(a, BaseException)), None)
    return Kind.PASSING


def _skew(error: BaseException) -> str:
    date = error.response.headers.get("date") if isinstance(error, S3Error) else None
    if date is None:
        return ""
    try:
        server = parsedate_to_datetime(date)
    except ValueError:
        return ""
    here = datetime.now(UTC)
    return f" (here {here:%Y-%m-%d %H:%M:%S}, there {server:%Y-%m-%d %H:%M:%S} UTC)"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DETAIL_LIMIT else line[: _DETAIL_LIMIT - 1] + "…"
