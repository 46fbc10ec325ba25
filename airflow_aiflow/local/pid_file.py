"""Remember which process serves a folder, so that one left by a crashed owner can be ended before the next starts."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from airflow_aiflow.local.private_file import read_json, write_json
from airflow_aiflow.local.process import ProcessIdentity, end_stranger


def remember(path: Path, pid: int, **facts: Any) -> None:
    """Write down a running process and facts about it; one that is gone already leaves the file as it was."""
    identity = ProcessIdentity.of(pid)
    if identity is not None:
        write_json(path, {"pid": identity.pid, "started": identity.started, **facts})


def recall(path: Path) -> dict[str, Any]:
    """Give what was written down; empty where nothing was."""
    return read_json(path) or {}


def running(path: Path) -> ProcessIdentity | None:
    """Give the process that was written down, where it still runs."""
    facts = recall(path)
    if "pid" not in facts:
        return None
    identity = ProcessIdentity(int(facts["pid"]), float(facts["started"]))
    return identity if identity.alive() else None


def end_left(path: Path, *, ask: signal.Signals, grace: float) -> None:
    """End the process that was written down, where it still runs.

    :param path: the file.
    :param ask: the signal that asks it to end.
    :param grace: seconds until SIGKILL.
    """
    left = running(path)
    if left is not None:
        end_stranger(left, ask=ask, grace=grace)
