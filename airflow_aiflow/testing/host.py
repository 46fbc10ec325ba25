"""The host of tests: collects the log, knows given secrets, and notes a wish to end the process."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.exceptions import AiflowConfigError

MASK = "***"


class TestingHost:
    """
    Be what runs the task.

    :param secrets: texts that Airflow's masker would know.
    """

    __test__ = False  # not a test class, whatever pytest thinks of its name

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self.secrets = frozenset(secrets)
        self.lines: list[str] = []
        self.warnings: list[str] = []
        #: Set when the watchdog wants the process to end.
        self.ended = threading.Event()
        self.end_reason = ""
        #: Whether an attempt that hangs is handed back, as Airflow does it; and in how many seconds it then comes back.
        self.may_come_back = False
        self.back_in: float | None = None
        #: connection id -> address, of the databases that ``flow.transaction`` may change.
        self.databases: dict[str, str] = {}

    def database(self, conn_id: str) -> str:
        """Give the address that a test wrote down."""
        if conn_id not in self.databases:
            raise AiflowConfigError(f"the test's host has no database '{conn_id}': give databases={{'{conn_id}': ...}}")
        return self.databases[conn_id]

    def log(self, line: str, *, warning: bool = False) -> None:
        """Collect a line."""
        self.lines.append(line)
        if warning:
            self.warnings.append(line)

    def is_secret(self, text: str) -> bool:
        """Say whether a text holds a given secret."""
        return any(secret in text for secret in self.secrets)

    def redact(self, text: str) -> str:
        """Mask the given secrets."""
        for secret in self.secrets:
            text = text.replace(secret, MASK)
        return text

    def secret_words(self) -> Sequence[str]:
        """Give some of Airflow's words."""
        return ("api_key", "password", "secret", "token")

    def ending(self, error: BaseException) -> ExecutionState | None:
        """Read every exception as the code's own error."""
        return ExecutionState.FAILED if isinstance(error, Exception) else None

    def end_process(self, why: str, *, superseded: bool = True, back_in: float | None = None) -> None:
        """Note the wish; a test's process goes on."""
        self.back_in = back_in
        self.end_reason = why
        self.ended.set()
