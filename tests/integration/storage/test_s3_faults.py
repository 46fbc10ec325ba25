"""
What the S3 store does on bad days: real sockets, a real server, a proxy between them.

Two rules: what passes is waited out and nothing is lost; what stays is said at once, by name, with the way out.
"""

from __future__ import annotations

import io
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import minio.time
import pytest

from airflow_aiflow.exceptions import (
    ArtifactDamagedError,
    ArtifactError,
    ArtifactMissingError,
    ArtifactUnavailableError,
)
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.storage import s3_requests
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from tests.artifact_world import S3ArtifactWorld, content, sha, unknown_bucket
from tests.fault_proxy import (
    FOREVER,
    Fault,
    FaultProxy,
    Handler,
    Reply,
    answer,
    changed,
    cut,
    fault_proxy,
    flip,
    page,
    truncated,
)

OCTETS = "application/octet-stream"
MIB = 1 << 20
#: Seconds in which a fault that stays must be told; the client's own retries would take minutes.
AT_ONCE = 5.0


@pytest.fixture
def proxy(object_store: ObjectStoreServer) -> Iterator[FaultProxy]:
    with fault_proxy(object_store.endpoint) as proxy:
        yield proxy


@pytest.fixture
def world(object_store: ObjectStoreServer, proxy: FaultProxy) -> Iterator[S3ArtifactWorld]:
    world = S3ArtifactWorld(object_store, proxy.endpoint)
    yield world
    world.store.close()


@pytest.fixture
def impatient(object_store: ObjectStoreServer, proxy: FaultProxy) -> Iterator[S3ArtifactWorld]:
    world = S3ArtifactWorld(object_store, proxy.endpoint, patience=0.5)
    yield world
    world.store.close()


def put(store: S3ArtifactStore, data: bytes) -> bytes:
    return store.put_file(io.BytesIO(data), media_type=OCTETS)[0]


def parts(proxy: FaultProxy) -> list[int]:
    """Give the sizes of the parts that were sent."""
    return [each.size for each in proxy.seen("PUT", "partNumber=")]


# --- storing ---


ONE_PUT: dict[str, dict[str, Any]] = {
    "400 after storing": answer(400, "RequestTimeout"),
    "500 after storing": answer(500, "InternalError"),
    "503 after storing": answer(503, "SlowDown"),
    "503 before storing": answer(503, "SlowDown", forward=False),
    "a balancer's page": page(502),
    "cut after storing": {"after": cut},
    "cut after the body was read": {"before": cut},
}


@pytest.mark.parametrize("fault", ONE_PUT.values(), ids=ONE_PUT)
def test_a_value_is_stored_whole_after_a_fault(
    world: S3ArtifactWorld, proxy: FaultProxy, fault: dict[str, Any]
) -> None:
    proxy.add(Fault("PUT", "/value/", **fault))
    data = content(300_000)
    address = world.store.put_value(data)
    assert world.store.get_value(address) == data
    assert len(world.objects()) == 1


@pytest.mark.parametrize("fault", ONE_PUT.values(), ids=ONE_PUT)
def test_a_large_file_is_stored_whole_after_a_fault(
    world: S3ArtifactWorld, proxy: FaultProxy, fault: dict[str, Any]
) -> None:
    """C52: the body of the first part has been read when it fails."""
    proxy.add(Fault("PUT", "partNumber=1", **fault))
    data = content(9 * MIB)
    address = put(world.store, data)
    assert world.read(world.keys(address)[0]) == data
    assert parts(proxy).count(8 * MIB) == 2, "the first part twice, and whole"
    assert world.uploads() == []


@pytest.mark.parametrize("fault", ONE_PUT.values(), ids=ONE_PUT)
def test_a_completion_with_a_fault(world: S3ArtifactWorld, proxy: FaultProxy, fault: dict[str, Any]) -> None:
    proxy.add(Fault("POST", "?uploadId=", **fault))
    data = content(9 * MIB)
    assert put(world.store, data) == sha(data)
    assert world.read(world.keys(sha(data))[0]) == data
    assert world.uploads() == []


def test_a_completion_that_says_200_and_means_an_error(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    proxy.add(Fault("POST", "?uploadId=", times=2, **answer(200, "InternalError", forward=False)))
    data = content(9 * MIB)
    put(world.store, data)
    assert world.read(world.keys(sha(data))[0]) == data
    assert len(parts(proxy)) == 2, "the completion is tried again, not the upload"
    assert world.uploads() == []


def test_a_server_that_always_answers_400_after_storing(impatient: S3ArtifactWorld, proxy: FaultProxy) -> None:
    proxy.add(Fault("PUT", "/value/", times=FOREVER, **answer(400, "InvalidRequest")))
    address = impatient.store.put_value(b"stored all the same")
    assert impatient.store.get_value(address) == b"stored all the same"


def test_a_stream_that_can_not_seek_is_sent_again_from_its_beginning(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    proxy.add(Fault("PUT", "partNumber=2", times=2, before=cut))
    data = content(9 * MIB)
    reading, writing = os.pipe()

    def feed() -> None:
        with os.fdopen(writing, "wb") as end:
            end.write(data)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reading, "rb") as pipe:
        address, size = world.store.put_file(pipe, media_type=OCTETS)
    feeder.join()
    assert (address, size) == (sha(data), len(data))
    assert world.read(world.keys(address)[0]) == data


def test_an_upload_that_fails_is_aborted(impatient: S3ArtifactWorld, proxy: FaultProxy) -> None:
    proxy.add(Fault("PUT", "partNumber=2", times=FOREVER, **answer(500, "InternalError", forward=False)))
    with pytest.raises(ArtifactUnavailableError, match="InternalError"):
        put(impatient.store, content(9 * MIB))
    assert impatient.objects() == set()
    assert impatient.uploads() == []


class Interrupted(io.BytesIO):
    """A stream in whose second reading a signal arrives."""

    rewinds = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self.rewinds += 1
        return super().seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        if self.rewinds == 2 and self.tell() > 7 * MIB:
            raise KeyboardInterrupt
        return super().read(size)


def test_an_upload_that_a_signal_ends_is_aborted(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.store.put_file(Interrupted(content(9 * MIB)), media_type=OCTETS)
    assert parts(proxy)
    assert world.objects() == set()
    assert world.uploads() == []


def test_parts_that_can_not_be_aborted_are_told_and_removed_by_the_next_put(
    impatient: S3ArtifactWorld, proxy: FaultProxy
) -> None:
    proxy.add(Fault("PUT", "partNumber=2", times=FOREVER, **answer(500, "InternalError", forward=False)))
    proxy.add(Fault("DELETE", "uploadId=", times=FOREVER, before=cut))
    data = content(9 * MIB)
    with pytest.raises(ArtifactUnavailableError) as failed:
        put(impatient.store, data)
    assert "left behind" in "".join(failed.value.__notes__)
    assert len(impatient.uploads()) == 1
    proxy.clear()
    put(impatient.store, data)
    assert impatient.uploads() == []
    assert impatient.read(impatient.keys(sha(data))[0]) == data


def test_an_upload_that_a_rival_takes_away_ends_well(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    """The rival has stored the same content and removes what it takes for leftovers."""
    data = content(9 * MIB)

    def rival_stores(*_: object) -> bool:
        other = S3ArtifactStore(replace(world.settings, endpoint=proxy.upstream))
        put(other, data)
        other.close()
        return False

    proxy.add(Fault("PUT", "partNumber=2", before=rival_stores))
    assert put(world.store, data) == sha(data)
    assert len(proxy.seen("POST", "?uploads=")) == 1, "the rival's object will do"
    assert world.uploads() == []
    assert world.read(world.keys(sha(data))[0]) == data


def test_a_bucket_rule_that_takes_an_upload_away_makes_it_start_again(
    world: S3ArtifactWorld, proxy: FaultProxy
) -> None:
    def abort_all(*_: object) -> bool:
        for upload in world.client._list_multipart_uploads(world.bucket, prefix=world.settings.prefix).uploads:
            world.client._abort_multipart_upload(world.bucket, upload.object_name, str(upload.upload_id))
        return False

    proxy.add(Fault("PUT", "partNumber=2", before=abort_all))
    data = content(9 * MIB)
    put(world.store, data)
    assert len(proxy.seen("POST", "?uploads=")) == 2
    assert world.read(world.keys(sha(data))[0]) == data


@pytest.mark.parametrize("size", [1000, 9 * MIB])
def test_what_is_there_is_not_sent_again(world: S3ArtifactWorld, proxy: FaultProxy, size: int) -> None:
    put(world.store, content(size))
    sent = len(proxy.seen("PUT"))
    put(world.store, content(size))
    assert len(proxy.seen("PUT")) == sent > 0


def test_what_is_there_with_another_size_is_replaced(world: S3ArtifactWorld) -> None:
    address = put(world.store, b"the right bytes")
    (key,) = world.keys(address)
    world.client.put_object(world.bucket, key, io.BytesIO(b"cut"), 3)
    put(world.store, b"the right bytes")
    assert world.store.open_file(address).read() == b"the right bytes"


@pytest.mark.parametrize("size", [1000, 9 * MIB])
def test_what_was_found_damaged_is_replaced(world: S3ArtifactWorld, size: int) -> None:
    address = put(world.store, content(size))
    world.corrupt(address)
    with pytest.raises(ArtifactDamagedError, match="Remove that object"):
        world.store.open_file(address).read()
    put(world.store, content(size))
    assert world.store.open_file(address).read() == content(size)


def test_an_object_too_large_for_the_server_is_final(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    """C56: a size error is told once and is no reason to run the task again."""
    proxy.add(Fault("PUT", "/value/", times=FOREVER, **answer(400, "EntityTooLarge", forward=False)))
    with pytest.raises(ArtifactError, match="no retry helps") as refused:
        world.store.put_value(b"large")
    assert not refused.value.retryable
    assert len(proxy.seen("PUT")) == 1


# --- reading ---


def test_a_truncated_value_is_read_again(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    address = world.store.put_value(content(500_000))
    proxy.add(Fault("GET", "/value/", times=2, after=truncated(100_000)))
    assert world.store.get_value(address) == content(500_000)
    assert len(proxy.seen("GET", "/value/")) == 3


@pytest.mark.parametrize("keep", [0, 100_000])
def test_a_value_that_is_always_truncated_is_no_value(impatient: S3ArtifactWorld, proxy: FaultProxy, keep: int) -> None:
    address = impatient.store.put_value(content(500_000))
    proxy.add(Fault("GET", "/value/", times=FOREVER, after=truncated(keep)))
    with pytest.raises(ArtifactUnavailableError, match=address.hex()):
        impatient.store.get_value(address)


def test_a_truncated_file_is_read_on_from_where_it_broke(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    data = content(3 * MIB)
    address = put(world.store, data)
    proxy.add(Fault("GET", "/file/", times=3, after=truncated(MIB - 5)))
    assert world.store.open_file(address).read() == data
    ranges = [each.headers.get("range") for each in proxy.seen("GET", "/file/")]
    assert ranges[0] is None
    assert len(ranges) == 4
    assert all(ranges[1:])


def test_a_file_whose_connection_always_breaks_is_no_file(impatient: S3ArtifactWorld, proxy: FaultProxy) -> None:
    data = content(MIB)
    address = put(impatient.store, data)
    proxy.add(Fault("GET", "/file/", times=FOREVER, after=truncated(0)))
    got = b""
    with impatient.store.open_file(address) as stream, pytest.raises(ArtifactUnavailableError, match=address.hex()):
        got = stream.read()
    assert got == b""


def test_a_reader_that_failed_stays_failed(impatient: S3ArtifactWorld, proxy: FaultProxy) -> None:
    """What a failed call had read is lost with it: going on after it would give bytes with a hole."""
    address = put(impatient.store, content(2 * MIB))
    proxy.add(Fault("GET", "/file/", after=truncated(MIB)))
    proxy.add(Fault("GET", "/file/", times=FOREVER, **page(502)))
    with impatient.store.open_file(address) as stream:
        assert stream.read(1000) == content(2 * MIB)[:1000]
        for _ in range(2):
            with pytest.raises(ArtifactUnavailableError):
                stream.read()
            proxy.clear()


@pytest.mark.parametrize("kind", ["value", "file"])
def test_a_shortened_body_is_damage(impatient: S3ArtifactWorld, proxy: FaultProxy, kind: str) -> None:
    """The length that is announced fits: nothing but the hash can tell."""
    data = content(500_000)
    address = impatient.store.put_value(data) if kind == "value" else put(impatient.store, data)
    proxy.add(Fault("GET", f"/{kind}/", times=FOREVER, after=changed(lambda body: body[:-1])))
    with pytest.raises(ArtifactDamagedError, match=address.hex()):
        impatient.store.get_value(address) if kind == "value" else impatient.store.open_file(address).read()


def test_a_bit_flipped_on_the_way_is_read_again(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    address = world.store.put_value(content(500_000))
    proxy.add(Fault("GET", "/value/", after=changed(flip)))
    assert world.store.get_value(address) == content(500_000)


def test_a_server_that_ignores_ranges_is_not_believed(impatient: S3ArtifactWorld, proxy: FaultProxy) -> None:
    data = content(2 * MIB)
    address = put(impatient.store, data)

    def whole(handler: Handler, reply: Reply) -> bool:
        assert reply.status == 206
        handler.reply(Reply(200, [], data))
        return True

    proxy.add(Fault("GET", "/file/", after=truncated(MIB)))
    proxy.add(Fault("GET", "/file/", times=FOREVER, after=whole))
    with pytest.raises(ArtifactUnavailableError, match="the server sent others"):
        impatient.store.open_file(address).read()


@pytest.mark.parametrize("status", [404, 403, 500, 200])
def test_an_answer_of_something_else_is_never_absence(
    impatient: S3ArtifactWorld, proxy: FaultProxy, status: int
) -> None:
    address = put(impatient.store, b"it is there")
    proxy.add(Fault("GET", "/file/", times=FOREVER, **page(status)))
    with pytest.raises((ArtifactUnavailableError, ArtifactDamagedError)):
        impatient.store.open_file(address).read()


# --- the server is away, or refuses ---


def elapsed(call: Callable[[], object]) -> tuple[float, BaseException]:
    begun = time.monotonic()
    with pytest.raises(ArtifactError) as failed:
        call()
    return time.monotonic() - begun, failed.value


def test_a_server_that_is_down_is_told_in_seconds(object_store: ObjectStoreServer) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{holder.getsockname()[1]}"
        store = S3ArtifactWorld(object_store, endpoint, patience=0.3).store
        for call in (
            lambda: store.put_value(b"x"),
            lambda: store.get_value(sha(b"x")),
            lambda: store.open_file(sha(b"x")),
            lambda: put(store, content(9 * MIB)),
        ):
            seconds, error = elapsed(call)
            assert seconds < AT_ONCE
            assert isinstance(error, ArtifactUnavailableError)
            assert endpoint in str(error)
            assert "retry may help" in str(error)


def test_the_client_s_own_retries_are_off(object_store: ObjectStoreServer, proxy: FaultProxy) -> None:
    store = S3ArtifactWorld(object_store, proxy.endpoint, patience=0).store
    proxy.add(Fault("GET", times=FOREVER, before=cut))
    with pytest.raises(ArtifactUnavailableError):
        store.get_value(sha(b"x"))
    assert len(proxy.seen("GET")) == 1


def test_a_server_that_never_answers_is_told(object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_requests, "READ_TIMEOUT", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = S3ArtifactWorld(object_store, f"127.0.0.1:{silent.getsockname()[1]}", patience=0.5).store
        seconds, error = elapsed(lambda: store.get_value(sha(b"x")))
    assert seconds < AT_ONCE
    assert "ReadTimeoutError" in str(error)


def test_a_server_that_comes_back_is_waited_for(stack_folder: Path) -> None:
    """I19: down at save and at replay; what was paid for is not lost."""
    server = ObjectStoreServer(stack_folder / f"s3-{secrets.token_hex(4)}")
    server.start()
    try:
        tried, back = threading.Event(), threading.Event()

        def sleep(seconds: float) -> None:
            tried.set()
            back.wait(seconds)

        world = S3ArtifactWorld(server, patience=90.0, sleep=sleep)
        early = world.store.put_value(b"stored before")
        for call, result in (
            (lambda: world.store.put_value(b"a paid answer"), sha(b"a paid answer")),
            (lambda: world.store.get_value(early), b"stored before"),
        ):
            server.stop()
            tried.clear()
            back.clear()
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(call)
                assert tried.wait(30)
                server.start()
                back.set()
                assert waiting.result(60) == result
        assert world.store.get_value(sha(b"a paid answer")) == b"a paid answer"
    finally:
        server.stop()


@pytest.mark.parametrize("call", ["put_value", "put_large", "get_value", "open_file"])
def test_a_missing_bucket_is_named(object_store: ObjectStoreServer, call: str) -> None:
    bucket = unknown_bucket()
    world = S3ArtifactWorld(object_store, bucket=bucket)
    calls: dict[str, Callable[[], object]] = {
        "put_value": lambda: world.store.put_value(b"x"),
        "put_large": lambda: put(world.store, content(9 * MIB)),
        "get_value": lambda: world.store.get_value(sha(b"x")),
        "open_file": lambda: world.store.open_file(sha(b"x")),
    }
    seconds, error = elapsed(calls[call])
    assert seconds < AT_ONCE
    assert isinstance(error, ArtifactUnavailableError)
    assert f"there is no bucket '{bucket}' at http://{object_store.endpoint}: create it" in str(error)
    assert "connection 'aiflow_artifacts' (field 'bucket')" in str(error)
    assert not world.client.bucket_exists(bucket), "a misspelt bucket must not come into being"


def test_a_bucket_is_made_when_asked(object_store: ObjectStoreServer) -> None:
    world = S3ArtifactWorld(object_store, bucket=unknown_bucket())
    assert world.store.ensure_bucket()
    assert not world.store.ensure_bucket()
    assert world.store.get_value(world.store.put_value(b"x")) == b"x"


@pytest.mark.parametrize("wrong", ["access_key", "secret_key"])
def test_wrong_credentials_are_named(object_store: ObjectStoreServer, wrong: str) -> None:
    right = S3ArtifactWorld(object_store).settings
    changes = {"access_key": right.access_key, "secret_key": right.secret_key, wrong: "not-the-right-one"}
    store = S3ArtifactStore(replace(right, access_key=changes["access_key"], secret_key=changes["secret_key"]))
    for call in (
        lambda: store.put_value(b"x"),
        lambda: store.get_value(sha(b"x")),
        lambda: put(store, content(9 * MIB)),
    ):
        seconds, error = elapsed(call)
        assert seconds < AT_ONCE
        assert isinstance(error, ArtifactUnavailableError)
        assert "refuses the credentials of connection 'aiflow_artifacts'" in str(error)
        assert "not-the-right-one" not in str(error)
        assert object_store.secret_key not in str(error)


def test_rotated_credentials_are_taken_up(object_store: ObjectStoreServer) -> None:
    """I19: the old keys end in mid-run; the connection has the new ones."""
    right = S3ArtifactWorld(object_store)
    asked: list[int] = []

    def renew() -> S3Settings:
        asked.append(1)
        return right.settings

    world = S3ArtifactWorld(object_store, secret_key="rotated away", renew=renew)
    address = world.store.put_value(b"paid for")
    assert world.store.get_value(address) == b"paid for"
    assert len(asked) == 1


def test_rotated_credentials_that_are_no_better_are_refused(object_store: ObjectStoreServer) -> None:
    wrong = S3ArtifactWorld(object_store, secret_key="wrong").settings
    world = S3ArtifactWorld(object_store, secret_key="wrong", renew=lambda: wrong)
    with pytest.raises(ArtifactUnavailableError, match="refuses the credentials"):
        world.store.put_value(b"x")


@pytest.mark.parametrize("hours", [-2, 2])
def test_clocks_that_differ_are_told(
    object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    world = S3ArtifactWorld(object_store)
    right = minio.time.utcnow
    monkeypatch.setattr(minio.time, "utcnow", lambda: right() + timedelta(hours=hours))
    for call in (lambda: world.store.put_value(b"x"), lambda: world.store.get_value(sha(b"x"))):
        seconds, error = elapsed(call)
        assert seconds < AT_ONCE
        assert isinstance(error, ArtifactUnavailableError)
        assert "the clocks differ (here " in str(error)
        assert "set this machine's clock" in str(error)


def test_tls_against_a_server_without_it_is_told(object_store: ObjectStoreServer) -> None:
    world = S3ArtifactWorld(object_store)
    store = S3ArtifactStore(replace(world.settings, secure=True))
    seconds, error = elapsed(lambda: store.put_value(b"x"))
    assert seconds < AT_ONCE
    assert "set 'secure' to false in connection 'aiflow_artifacts'" in str(error)


def test_a_certificate_of_nobody_is_told(object_store: ObjectStoreServer, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    try:
        subprocess.run(
            [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("no openssl program to make a certificate with")
    with fault_proxy(object_store.endpoint) as proxy:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        proxy.speak_tls(context)
        world = S3ArtifactWorld(object_store, proxy.endpoint)
        settings = replace(world.settings, secure=True)
        seconds, error = elapsed(lambda: S3ArtifactStore(settings).put_value(b"x"))
        assert seconds < AT_ONCE
        assert "name its authority's file in 'verify'" in str(error)
        trusting = S3ArtifactStore(replace(settings, verify=str(certificate)))
        assert trusting.get_value(trusting.put_value(b"x")) == b"x"
        data = content(9 * MIB)
        assert trusting.open_file(put(trusting, data)).read() == data
        careless = S3ArtifactStore(replace(settings, verify=False))
        with pytest.warns(Warning, match="Unverified HTTPS"):
            assert careless.get_value(sha(b"x")) == b"x"


# --- killed ---


UPLOADER = """
import io, sys
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from tests.artifact_world import content
endpoint, bucket, access_key, secret_key, prefix, size = sys.argv[1:]
keys = {"access_key": access_key, "secret_key": secret_key}
settings = S3Settings(endpoint=endpoint, bucket=bucket, prefix=prefix, secure=False, **keys)
S3ArtifactStore(settings).put_file(io.BytesIO(content(int(size) << 20)), media_type="application/octet-stream")
"""


@pytest.mark.parametrize(("at", "size"), [("partNumber=5", 60), ("?uploadId=", 9)])
def test_a_kill_in_an_upload_leaves_a_whole_object_or_none(
    world: S3ArtifactWorld, object_store: ObjectStoreServer, proxy: FaultProxy, at: str, size: int
) -> None:
    """C52: kill -9 in mid multipart, and before its completion; the next put removes what it left."""
    reached, killed = threading.Event(), threading.Event()

    def hold(*_: object) -> bool:
        reached.set()
        killed.wait(60)
        return cut(*_)  # type: ignore[arg-type]

    proxy.add(Fault("POST" if at.startswith("?") else "PUT", at, before=hold))
    keys = [object_store.access_key, object_store.secret_key, world.settings.prefix, str(size)]
    child = subprocess.Popen([sys.executable, "-c", UPLOADER, proxy.endpoint, world.bucket, *keys])
    try:
        assert reached.wait(60)
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
        killed.set()
    assert world.objects() == set()
    assert len(world.uploads()) == 1
    data = content(size * MIB)
    assert put(world.store, data) == sha(data)
    assert world.uploads() == []
    assert sha(world.read(world.keys(sha(data))[0])) == sha(data)
    assert len(world.objects()) == 1


def test_what_nobody_stores_again_can_be_swept(world: S3ArtifactWorld) -> None:
    key = world.settings.key("file", "ab" * 32)
    headers: dict[str, str | list[str] | tuple[str]] = {}
    world.client._create_multipart_upload(world.bucket, key, headers)
    other = f"{world.settings.prefix}-of-others/file/ab/{'ab' * 32}"
    other_id = world.client._create_multipart_upload(world.bucket, other, headers)
    assert world.store.remove_unfinished(older_than=3600) == 0
    assert world.store.remove_unfinished(older_than=0) == 1
    assert world.uploads() == [other]
    world.client._abort_multipart_upload(world.bucket, other, other_id)


# --- names, addresses, the probe ---


def test_names_never_reach_a_key(object_store: ObjectStoreServer) -> None:
    """C49, C50: four names are four artifacts, and nothing leaves the prefix."""
    from airflow_aiflow.durable.artifact import ArtifactRef

    world = S3ArtifactWorld(object_store, bucket=object_store.bucket(), prefix="team/aiflow")
    refs = []
    for name in ("a/b", "a_b", "a\\b", "a%2Fb", "../../x", "/etc/passwd", ""):
        sha256, size = world.store.put_file(io.BytesIO(f"content of {name}".encode()), media_type="text/plain")
        refs.append(ArtifactRef(sha256.hex(), size, "text/plain", name, world.store.uri(sha256)))
    assert len({ref.uri for ref in refs}) == len(list(world.client.list_objects(world.bucket, recursive=True))) == 7
    for ref in refs:
        key = ref.uri.removeprefix(f"s3://{world.bucket}/")
        assert key == f"team/aiflow/file/{ref.sha256[:2]}/{ref.sha256}"
        assert world.read(key) == f"content of {ref.name}".encode()


def test_the_same_content_under_two_names_is_one_object(world: S3ArtifactWorld) -> None:
    first = world.store.put_file(io.BytesIO(b"same"), media_type="text/plain")
    second = world.store.put_file(io.BytesIO(b"same"), media_type="text/html")
    assert first == second
    assert len(world.objects()) == 1


def test_a_bucket_without_a_prefix(object_store: ObjectStoreServer) -> None:
    world = S3ArtifactWorld(object_store, bucket=object_store.bucket(), prefix="")
    address = put(world.store, b"x")
    assert world.objects() == {f"file/{address.hex()[:2]}/{address.hex()}"}


def test_a_link_goes_to_the_address_that_people_reach(object_store: ObjectStoreServer, proxy: FaultProxy) -> None:
    import urllib.request

    world = S3ArtifactWorld(object_store, public_url=f"http://{proxy.endpoint}")
    address = put(world.store, b"for people")
    assert not proxy.seen("GET")
    with urllib.request.urlopen(world.store.url(address, expires=60), timeout=10) as response:
        assert response.read() == b"for people"
        assert response.headers["Content-Disposition"].startswith("attachment")
    assert proxy.seen("GET")


def test_a_link_expires(object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import urllib.error
    import urllib.request

    world = S3ArtifactWorld(object_store)
    address = put(world.store, b"for an hour")
    right = minio.time.utcnow
    monkeypatch.setattr(minio.time, "utcnow", lambda: right() - timedelta(minutes=61))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(world.store.url(address, expires=3600), timeout=10)
    assert refused.value.code == 403


def test_the_probe_tells_what_a_server_does(object_store: ObjectStoreServer) -> None:
    world = S3ArtifactWorld(object_store)
    report = world.store.probe()
    assert report.conditional_put == "minded"
    assert report.checksum == "minded"
    assert report.lists_uploads
    assert report.deletes
    assert report.clock_skew is not None
    assert abs(report.clock_skew) < 30
    assert "SeaweedFS" in report.server
    assert world.objects() == set()


def test_the_probe_of_a_server_that_ignores_conditions(world: S3ArtifactWorld, proxy: FaultProxy) -> None:
    """C51: as an older server did; two writers have one object all the same."""
    ignoring = frozenset({"if-none-match", "content-md5"})
    proxy.add(Fault("PUT", "/probe/", times=FOREVER, without=ignoring))
    report = world.store.probe()
    assert report.conditional_put == "ignored"
    assert report.checksum == "ignored"
    assert world.store.put_value(b"x") == world.store.put_value(b"x")
    assert len(world.objects()) == 1


def test_a_missing_object_of_a_probe_world_is_missing(world: S3ArtifactWorld) -> None:
    with pytest.raises(ArtifactMissingError, match=f"not in bucket '{world.bucket}'"):
        world.store.open_file(sha(b"never"))
