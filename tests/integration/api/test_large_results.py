"""Large results out of a real S3 server: streamed, by range, and without the API server's memory growing with them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from tests.artifact_world import content

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
FILE = content(96 * MIB)
#: JSON of another 96 MiB, which lies in the store as a few: what is decompressed must not be held either.
VALUE = json.dumps([f"line {number}: " + "é$" * 500 for number in range(66_000)], ensure_ascii=False).encode()

#: Bytes by which the server's peak may grow over all downloads: eight clients hold a piece each, and sockets theirs.
GROWTH = 40 * MIB
PATIENCE = 60.0


class Server:
    """
    Be the server.

    :param port: where it listens.
    """

    def __init__(self, port: int, said: dict[str, Any]) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v1/submissions"
        command = [sys.executable, "-m", "tests.integration.api.result_server", json.dumps(said | {"port": port})]
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[3], env=os.environ | {"PYTHONPATH": "."})

    def wait(self) -> None:
        never = threading.Event()
        for _ in range(int(PATIENCE / 0.1)):
            assert self.process.poll() is None, "it did not start"
            try:
                assert httpx.get(self.address(3), timeout=PATIENCE).json() == "small"
                return
            except httpx.TransportError:
                never.wait(0.1)
        raise AssertionError("it does not answer")

    def address(self, which: int) -> str:
        return f"{self.url}/{UUID(int=which)}/result"

    def peak(self) -> int:
        """Give the most memory that it ever had, in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("this system does not tell")


@pytest.fixture(scope="module")
def server(object_store: ObjectStoreServer) -> Iterator[Server]:
    settings = S3Settings(
        endpoint=object_store.endpoint,
        bucket=object_store.bucket(),
        access_key=object_store.access_key,
        secret_key=object_store.secret_key,
        secure=False,
    )
    store = S3ArtifactStore(settings)
    store.ensure_bucket()
    sha256, size = store.put_file(io.BytesIO(FILE), media_type="application/pdf")
    file = {"sha256": sha256.hex(), "size": size, "media_type": "application/pdf", "name": "a.pdf", "uri": "s3://"}
    value = store.put_value(VALUE).hex()
    store.close()
    made = Server(free_port(), {"settings": asdict(settings), "file": file, "value": value})
    try:
        made.wait()
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def downloaded(server: Server, which: int, **headers: str) -> tuple[httpx.Response, str, int]:
    """Give the answer, the SHA-256 of its body, and its size."""
    digest, size = hashlib.sha256(), 0
    with httpx.stream("GET", server.address(which), headers=headers, timeout=PATIENCE) as answer:
        for piece in answer.iter_raw():
            digest.update(piece)
            size += len(piece)
    return answer, digest.hexdigest(), size


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read as Linux tells it")
def test_memory_does_not_grow_with_what_is_given(server: Server) -> None:
    before = server.peak()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: downloaded(server, 1 + number % 2), range(8)))
    for number, (answer, sha256, size) in enumerate(answers):
        data, kind = (FILE, "application/pdf") if number % 2 == 0 else (VALUE, "application/json")
        assert (answer.status_code, size, sha256) == (200, len(data), hashlib.sha256(data).hexdigest())
        assert answer.headers["Content-Type"] == kind
        assert answer.headers["Content-Length"] == str(len(data))
        assert answer.headers["ETag"] == f'"{sha256}"'
    grown = server.peak() - before
    assert grown < GROWTH, f"{grown / MIB:.0f} MiB for 8 times 96 MiB"


@pytest.mark.parametrize(("which", "data"), [(1, FILE), (2, VALUE)], ids=["file", "value"])
def test_who_was_cut_off_gets_the_rest(server: Server, which: int, data: bytes) -> None:
    got = b""
    with httpx.stream("GET", server.address(which), timeout=PATIENCE) as answer:
        tag = answer.headers["ETag"]
        for piece in answer.iter_raw():
            got += piece
            if len(got) > 5 * MIB:
                break
    rest = httpx.get(server.address(which), headers={"Range": f"bytes={len(got)}-", "If-Range": tag}, timeout=PATIENCE)
    assert rest.status_code == 206
    assert rest.headers["Content-Range"] == f"bytes {len(got)}-{len(data) - 1}/{len(data)}"
    assert hashlib.sha256(got + rest.content).hexdigest() == tag.strip('"')
    some = httpx.get(
        server.address(which), headers={"Range": f"bytes={len(data) - 9}-{len(data) - 5}"}, timeout=PATIENCE
    )
    assert (some.status_code, some.content) == (206, data[-9:-4])
    beyond = httpx.get(server.address(which), headers={"Range": f"bytes={len(data)}-"}, timeout=PATIENCE)
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(data)}")
    assert beyond.headers["Content-Type"] == "application/problem+json"
    assert httpx.get(server.address(which), headers={"If-None-Match": tag}, timeout=PATIENCE).status_code == 304


def test_clients_that_do_not_read_keep_nobody_from_anything(server: Server) -> None:
    """Forty begin a large file and take none of it: who asks for something else has it at once."""
    clients = [httpx.Client(timeout=PATIENCE) for _ in range(40)]
    try:
        streams = [client.send(client.build_request("GET", server.address(1)), stream=True) for client in clients]
        assert {each.status_code for each in streams} == {200}
        assert httpx.get(server.address(3), timeout=PATIENCE).json() == "small"
        answer, _, size = downloaded(server, 1)
        assert (answer.status_code, size) == (200, len(FILE))
    finally:
        for client in clients:
            client.close()
