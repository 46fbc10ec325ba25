"""The embedded S3 server: keys asked for, loopback only, restarts with what was stored."""

from __future__ import annotations

import importlib.metadata
import io
import os
import secrets
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from minio import Minio
from minio.error import S3Error

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.objectstore import ObjectStoreServer


@pytest.fixture
def server(stack_folder: Path) -> Iterator[ObjectStoreServer]:
    server = ObjectStoreServer(stack_folder / f"s3-{secrets.token_hex(4)}")
    server.start()
    yield server
    server.stop()


def fetch(client: Minio, bucket: str, name: str) -> bytes:
    response = client.get_object(bucket, name)
    try:
        return bytes(response.read())
    finally:
        response.close()
        response.release_conn()


def listening(pid: int) -> set[tuple[str, int]]:
    connections = psutil.Process(pid).net_connections("inet")
    return {(each.laddr.ip, each.laddr.port) for each in connections if each.status == psutil.CONN_LISTEN}


def test_stores_and_gives_back(object_store: ObjectStoreServer) -> None:
    bucket = object_store.bucket()
    client = object_store.client()
    content = os.urandom(12 << 20)
    client.put_object(bucket, "big", io.BytesIO(content), -1, part_size=5 << 20)
    assert fetch(client, bucket, "big") == content
    assert client.bucket_exists("aiflow")


def test_wrong_keys_are_refused(object_store: ObjectStoreServer) -> None:
    stranger = Minio(object_store.endpoint, object_store.access_key, "wrong", secure=False, region=object_store.region)
    with pytest.raises(S3Error) as refused:
        stranger.bucket_exists("aiflow")
    assert refused.value.code in {"AccessDenied", "SignatureDoesNotMatch"}


def test_listens_on_loopback_only(object_store: ObjectStoreServer) -> None:
    assert {address for address, _ in listening(object_store.pid)} == {"127.0.0.1"}


def test_no_http_port_gives_objects_without_keys(object_store: ObjectStoreServer) -> None:
    object_store.client().put_object("aiflow", "secret", io.BytesIO(b"word"), 4)
    for _, port in listening(object_store.pid):
        for path in ("aiflow/secret", "buckets/aiflow/secret"):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as response:
                    assert response.read() != b"word", f"port {port} gives {path} to anyone"
            except (urllib.error.URLError, OSError, ValueError):
                continue


def test_a_restart_keeps_address_and_objects(server: ObjectStoreServer) -> None:
    server.client().put_object("aiflow", "kept", io.BytesIO(b"word"), 4)
    endpoint = server.endpoint
    server.stop()
    server.start()
    assert server.endpoint == endpoint
    assert fetch(server.client(), "aiflow", "kept") == b"word"


def test_a_kill_and_other_ports_keep_objects(server: ObjectStoreServer) -> None:
    server.client().put_object("aiflow", "kept", io.BytesIO(b"word"), 4)
    port = int(server.endpoint.rpartition(":")[2])
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        holder.listen()
        server.start()
        assert not server.endpoint.endswith(f":{port}")
        assert fetch(server.client(), "aiflow", "kept") == b"word"


def test_nothing_is_left_in_the_temporary_folder(server: ObjectStoreServer) -> None:
    ports = {port for _, port in listening(server.pid)}
    server.stop()
    left = [path for path in Path("/tmp").glob("seaweedfs-*.sock") if any(str(port) in path.name for port in ports)]
    assert left == []


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port} for the S3 server is in use"):
            ObjectStoreServer(tmp_path / "s3", port).start()


def test_a_missing_wheel_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", absent)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(StackError, match=r'pip install "airflow-aiflow\[local\]"'):
        ObjectStoreServer(tmp_path / "s3").start()
