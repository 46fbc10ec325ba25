"""
Carry out single S3 requests: patience with what passes, no patience with what stays, one translation of errors.

The HTTP client's own retries are off: they multiply with ours and make a server that is down take minutes to fail. An
action given to ``run`` must be repeatable: it holds the whole body in memory and reads from no stream.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import urlsplit

import certifi
import tenacity
import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import (
    AWSConfigProvider,
    ChainedProvider,
    EnvAWSProvider,
    IamAwsProvider,
    Provider,
)
from tenacity.stop import stop_base

from airflow_aiflow.exceptions import ArtifactError, ArtifactMissingError, ArtifactUnavailableError
from airflow_aiflow.storage.s3_faults import REQUEST_ERRORS, Kind, explain, judge
from airflow_aiflow.storage.s3_settings import S3Settings

T = TypeVar("T")

#: A server on the same continent answers a connect within 0.3 s; 5 s leaves room for three lost SYNs.
CONNECT_TIMEOUT: Final = 5.0
#: Completing a large multipart upload is the longest silence of a healthy server.
READ_TIMEOUT: Final = 60.0
#: The address that gives a machine's role is on the machine's own network: silence means that there is none.
ROLE_TIMEOUT: Final = 2.0
#: As many idle connections as a ``flow.map`` has workers, twice.
POOL_SIZE: Final = 16
#: Seconds for which a fault that may pass is retried: a restart of a server, not an outage.
DEFAULT_PATIENCE: Final = 20.0
#: A 400 after a cut body goes away at once; one that means a mistake never does.
DOUBTFUL_TRIES: Final = 3
#: Full jitter from a quarter of a second, never over five: a server that comes back is met within that.
_FIRST_WAIT: Final = 0.25
_LONGEST_WAIT: Final = 5.0


def make_client(settings: S3Settings, http_client: urllib3.PoolManager, *, public: bool = False) -> Minio:
    """
    Make an SDK client.

    :param http_client: the connections, with their time-outs.
    :param public: address the server as people's browsers do; for making links only.
    """
    endpoint, secure = settings.endpoint, settings.secure
    if public and settings.public_url is not None:
        parts = urlsplit(settings.public_url)
        endpoint, secure = parts.netloc, parts.scheme == "https"
    host = urlsplit(f"//{endpoint}").hostname or ""
    # Elsewhere any region will do, and naming one saves a round trip.
    region = settings.region or (None if host.endswith((".amazonaws.com", ".amazonaws.com.cn")) else "us-east-1")
    return Minio(
        endpoint,
        access_key=settings.access_key,
        secret_key=settings.secret_key,
        session_token=settings.session_token,
        secure=secure,
        region=region,
        credentials=_aws_chain(settings) if settings.access_key is None else None,
        http_client=http_client,
    )


class S3Requests:
    """
    Run requests against one bucket. Safe for use from several threads.

    Not covered: use in a process forked from the one that made it; sockets would be shared.

    :param settings: the bucket.
    :param patience: seconds for which a fault that may pass is retried; 0 tries once.
    :param renew: gives the settings anew after the server has refused the credentials, which may have been rotated.
    :param sleep: waits between tries.
    """

    def __init__(
        self,
        settings: S3Settings,
        *,
        patience: float = DEFAULT_PATIENCE,
        renew: Callable[[], S3Settings] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.http = make_http_client(settings.verify)
        self.client = make_client(settings, self.http)
        self.patience = patience
        self._renew = renew
        self._sleep = sleep
        self._lock = threading.Lock()

    def run(self, what: str, action: Callable[[Minio], T], *, patience: float | None = None) -> T:
        """
        Carry out a request.

        :param what: what it is for, to end the sentence "could not ...".
        :param action: makes the request; may be called several times.
        :param patience: seconds, where not the usual ones.
        :raises ArtifactMissingError: what it asked for is not there.
        :raises ArtifactUnavailableError: the server can't be reached, or refuses.
        :raises ArtifactError: no retry can help.
        """
        client = self.client
        try:
            try:
                return self._persist(lambda: action(client), self.patience if patience is None else patience)
            except REQUEST_ERRORS as error:
                if judge(error).kind is not Kind.REFUSED or not self._renewed(client):
                    raise
                return self._persist(lambda: action(self.client), 0)
        except REQUEST_ERRORS as error:
            raise translate(error, what, self.settings) from error

    def close(self) -> None:
        """Give the connections back."""
        self.http.clear()

    def _persist(self, action: Callable[[], T], patience: float) -> T:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_any(tenacity.stop_after_delay(patience), _EnoughDoubt()),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT),
            sleep=self._sleep,
            reraise=True,
        )(action)

    def _renewed(self, refused: Minio) -> bool:
        """Take new credentials, where there are other ones than those that were refused."""
        with self._lock:
            if self.client is not refused:
                return True
            if self._renew is None:
                return False
            fresh = self._renew()
            settings = replace(
                self.settings,
                access_key=fresh.access_key,
                secret_key=fresh.secret_key,
                session_token=fresh.session_token,
            )
            if settings == self.settings:
                return False
            self.settings, self.client = settings, make_client(settings, self.http)
            return True


def translate(error: BaseException, what: str, settings: S3Settings) -> ArtifactError:
    """Make our own error of what a request raised; ``what`` ends the sentence "could not ..."."""
    fault = judge(error)
    if fault.kind is Kind.ABSENT:
        return ArtifactMissingError(f"could not {what}: it is not in bucket {settings.bucket!r} at {settings.address}")
    message = f"could not {what}: {explain(fault, error, settings)}"
    return ArtifactError(message) if fault.kind is Kind.TOO_LARGE else ArtifactUnavailableError(message)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, REQUEST_ERRORS) and judge(error).kind in {Kind.PASSING, Kind.DOUBTFUL}


class _EnoughDoubt(stop_base):
    def __call__(self, retry_state: tenacity.RetryCallState) -> bool:
        error = retry_state.outcome.exception() if retry_state.outcome is not None else None
        doubtful = error is not None and judge(error).kind is Kind.DOUBTFUL
        return doubtful and retry_state.attempt_number >= DOUBTFUL_TRIES


def make_http_client(verify: bool | str) -> urllib3.PoolManager:
    """
    Make connections with our time-outs and no retries of their own.

    :param verify: whether to check certificates, or the file of the authorities to trust.
    """
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT),
        maxsize=POOL_SIZE,
        retries=urllib3.Retry(total=False, redirect=False),
        cert_reqs="CERT_REQUIRED" if verify else "CERT_NONE",
        ca_certs=verify if isinstance(verify, str) else os.environ.get("SSL_CERT_FILE") or certifi.where(),
    )


class _MachineRole(IamAwsProvider):
    """Ask the machine for its role's credentials; "there is no such service" is not "the S3 server is down"."""

    def retrieve(self) -> Credentials:
        try:
            return super().retrieve()
        except urllib3.exceptions.HTTPError as error:
            raise ValueError(f"this machine has no role to take credentials from: {error}") from error


def _aws_chain(settings: S3Settings) -> Provider:
    profile = AWSConfigProvider(profile=settings.profile)
    if settings.profile is not None:
        return profile
    impatient = urllib3.PoolManager(timeout=ROLE_TIMEOUT, retries=False)
    return ChainedProvider([EnvAWSProvider(), profile, _MachineRole(http_client=impatient)])
