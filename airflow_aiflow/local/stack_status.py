"""What a stack looks like from outside: read its state file, look at its processes, knock at its doors, end it."""

from __future__ import annotations

import signal
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import pid_file
from airflow_aiflow.local.airflow_client import AirflowClient
from airflow_aiflow.local.process import ProcessIdentity, end_stranger
from airflow_aiflow.local.stack import STATE_FILE

#: Seconds for one knock; all parts are on this machine.
KNOCK_TIMEOUT = 5.0
#: Seconds for a stack to end in order: Airflow takes a few, SeaweedFS up to three.
STOP_GRACE = 60.0


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One part: whether it lives and answers."""

    name: str
    pid: int
    address: str
    healthy: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StackStatus:
    """The stack: `stopped`, `starting`, `running`, `unhealthy` or `stopping`."""

    state: str
    home: str
    pid: int | None = None
    dags_folder: str | None = None
    parts: tuple[PartStatus, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Give it as a JSON object."""
        return {**asdict(self), "parts": [asdict(part) for part in self.parts]}


def owner(home: Path) -> ProcessIdentity | None:
    """Give the process that owns the stack, where it runs."""
    return pid_file.running(home / STATE_FILE)


def refuse_running(home: Path) -> None:
    """Refuse to touch the folder of a running stack.

    :param home: folder of its state.
    :raises StackError: a stack runs there.
    """
    running = owner(home)
    if running is not None:
        raise StackError(
            f"a stack is running in {home} (process {running.pid}): end it with `aiflow down --home {home}`, or give "
            f"another --home"
        )


def look(home: Path) -> StackStatus:
    """Look at a stack.

    :param home: folder of its state.
    """
    identity = owner(home)
    facts = pid_file.recall(home / STATE_FILE)
    if identity is None:
        return StackStatus("stopped", str(home))
    parts = tuple(_knock(name, part["pid"], part["address"]) for name, part in facts.get("parts", {}).items())
    state = str(facts["state"])
    if state == "running" and not all(part.healthy for part in parts):
        state = "unhealthy"
    return StackStatus(state, str(home), identity.pid, facts.get("dags_folder"), parts)


def _knock(name: str, pid: int, address: str) -> PartStatus:
    if ProcessIdentity.of(pid) is None:
        return PartStatus(name, pid, address, False, "its process is gone")
    try:
        if name == "airflow":
            return _knock_at_airflow(pid, address)
        parts = urlsplit(address)
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=KNOCK_TIMEOUT).close()
    except (OSError, requests.RequestException) as error:
        return PartStatus(name, pid, address, False, f"does not answer: {error}")
    return PartStatus(name, pid, address, True)


def _knock_at_airflow(pid: int, address: str) -> PartStatus:
    health = AirflowClient(address, "", "").health()
    ill = [name for name, part in health.items() if isinstance(part, dict) and part.get("status") == "unhealthy"]
    return PartStatus("airflow", pid, address, not ill, f"unhealthy: {', '.join(ill)}" if ill else "")


def end(home: Path) -> bool:
    """End a stack from outside, and wait until it is gone.

    :param home: folder of its state.
    :return: whether one was running.
    """
    identity = owner(home)
    if identity is None:
        return False
    # Killed outright, it takes its children with it.
    end_stranger(identity, ask=signal.SIGTERM, grace=STOP_GRACE)
    (home / STATE_FILE).unlink(missing_ok=True)
    return True
