"""The three services of the stack that are Python programs of this package, each a process with a folder of its own."""

from __future__ import annotations

import email
import email.policy
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Any, ClassVar

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import pid_file
from airflow_aiflow.local.fault import Fault, write_faults
from airflow_aiflow.local.folder_server import StartedFolderServer
from airflow_aiflow.local.ports import LOOPBACK, keep_or_find, require_free
from airflow_aiflow.local.private_file import write_private
from airflow_aiflow.local.process import spawn, stop, tail
from airflow_aiflow.local.request_log import CountedRequest, read_events, read_requests

#: Seconds until a service must listen; a Python process needs 0.3 s, several at once on two cores some seconds.
START_TIMEOUT = 60.0
START_POLL = 0.02
STOP_GRACE = 3.0
LAUNCHES = 3


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give the environment for a Python child; byte code is written, since starts without it take three times as long.

    :param extra: variables to add.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **(extra or {})}


class PythonService(StartedFolderServer):
    """One service process.

    :param folder: where its files and log live; made if it is missing.
    :param port: TCP port; None keeps the last one where it is free, else finds one.
    :param owned: end the service when this process ends, however it ends.
    """

    module: ClassVar[str]

    def __init__(self, folder: Path, port: int | None = None, *, owned: bool = True) -> None:
        super().__init__(folder, "service.log", port, owned=owned)
        self.control_file = self.folder / "control.json"
        self._pid_file = self.folder / "server.json"

    def start(self) -> None:
        """Start the service and wait until it listens.

        :raises StackError: another process uses the folder, the port is busy, or the service failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock.acquire()
        try:
            pid_file.end_left(self._pid_file, ask=signal.SIGTERM, grace=STOP_GRACE)
            if self._wanted_port is not None:
                require_free(self._wanted_port, self.what)
            for _ in range(LAUNCHES):
                self._port = self._wanted_port or keep_or_find(pid_file.recall(self._pid_file).get("port"))
                if self._launch():
                    pid_file.remember(self._pid_file, self.pid, port=self._port)
                    return
            raise StackError(f"{self.what} did not start in {self.folder}; the end of {self.log}:\n{tail(self.log)}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the service; again is harmless."""
        process, self._process = self._process, None
        if process is not None:
            stop(process, ask=signal.SIGTERM, grace=STOP_GRACE)
        self._lock.release()

    def set_faults(self, *faults: Fault) -> None:
        """Tell the service how to behave from its next request on; nothing given means well."""
        write_faults(self.control_file, faults)

    def arguments(self) -> Sequence[str]:
        """Give the program's own arguments."""
        raise NotImplementedError

    def _launch(self) -> bool:
        already = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-P", "-m", self.module, "--port", str(self._port)]
        command += ["--control-file", str(self.control_file), *self.arguments()]
        self._process = spawn(command, log=self.log, env=child_environment(), cwd=self.folder, owned=self._owned)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            with self.log.open("rb") as log:
                log.seek(already)
                if f"serving on {LOOPBACK}:{self._port}\n".encode() in log.read():
                    return True
            time.sleep(START_POLL)
        raise StackError(f"{self.what} in {self.folder} did not listen within {START_TIMEOUT:.0f} s")

    def _secret(self, name: str) -> Path:
        """Give a file with a random secret, made at the first start."""
        path = self.folder / name
        if not path.exists():
            write_private(path, secrets.token_hex(20))
        return path


class ModelService(PythonService):
    """The stand-in model server."""

    module = "airflow_aiflow.local.model_server"
    what = "the stand-in model server"

    @property
    def base_url(self) -> str:
        """Give the address that OpenAI's clients take."""
        return f"http://{LOOPBACK}:{self.port}/v1"

    @property
    def api_key(self) -> str:
        """Give the key that clients must show."""
        return self._secret("api-key").read_text().strip()

    @property
    def count_file(self) -> Path:
        """Give the file in which requests are counted."""
        return self.folder / "requests.jsonl"

    def requests(self) -> list[CountedRequest]:
        """Give every request that ever arrived."""
        return read_requests(self.count_file)

    def arguments(self) -> Sequence[str]:
        """Give the program's own arguments."""
        return ["--count-file", str(self.count_file), "--api-key-file", str(self._secret("api-key"))]


class MailService(PythonService):
    """The SMTP server that keeps mails."""

    module = "airflow_aiflow.local.mail_sink"
    what = "the mail sink"

    @property
    def mail_folder(self) -> Path:
        """Give the folder with one file per mail."""
        return self.folder / "mails"

    def mails(self) -> list[EmailMessage]:
        """Give every mail that was accepted, in order of arrival."""
        files = sorted(self.mail_folder.glob("*.eml"))
        return [email.message_from_bytes(file.read_bytes(), policy=email.policy.default) for file in files]

    def arguments(self) -> Sequence[str]:
        """Give the program's own arguments."""
        return ["--folder", str(self.mail_folder)]


class RecordsService(PythonService):
    """The service that creates records and keeps idempotency keys."""

    module = "airflow_aiflow.local.record_service"
    what = "the record service"

    @property
    def base_url(self) -> str:
        """Give the service's address."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def token(self) -> str:
        """Give the token that clients must show."""
        return self._secret("token").read_text().strip()

    @property
    def records_file(self) -> Path:
        """Give the file with one record a line."""
        return self.folder / "records.jsonl"

    @property
    def count_file(self) -> Path:
        """Give the file in which creating requests are counted."""
        return self.folder / "requests.jsonl"

    def records(self) -> list[dict[str, Any]]:
        """Give every record that was created, in order."""
        return read_events(self.records_file)

    def requests(self) -> list[CountedRequest]:
        """Give every request to create a record that ever arrived."""
        return read_requests(self.count_file)

    def arguments(self) -> Sequence[str]:
        """Give the program's own arguments."""
        files = ["--records-file", str(self.records_file), "--count-file", str(self.count_file)]
        return [*files, "--token-file", str(self._secret("token"))]
