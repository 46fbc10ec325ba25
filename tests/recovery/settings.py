"""The stacks in which the cases are played."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from tests.recovery.expected import Setting
from tests.recovery.world import AIRFLOW_DEFAULTS, World

#: Seconds scaled down, so that a case takes some instead of minutes; Airflow's own heartbeat time-out stays at 300 s.
SHORT = {
    "aiflow.lease_ttl": "6",
    "aiflow.heartbeat_interval": "2",
    "aiflow.stall_floor": "15",
    "scheduler.task_instance_heartbeat_timeout": "300",
    "scheduler.task_instance_heartbeat_timeout_detection_interval": "10",
    "scheduler.orphaned_tasks_check_interval": "300",
    # Room for what several cases lose at once, and for the recovery DAG's own task.
    "core.parallelism": "6",
}

OPTIONS: dict[Setting, dict[str, str]] = {
    "short": SHORT,
    "default": AIRFLOW_DEFAULTS,
    "ahead": SHORT,
    "behind": SHORT,
}

#: How far a wrong clock is off.
OFF = {"ahead": "+10m", "behind": "-10m"}


def faketime() -> Path | None:
    """Find the library that shifts a process's clock, in the wheel of PyPI's ``libfaketime``."""
    found = importlib.util.find_spec("libfaketime")
    if found is None or found.origin is None:
        return None
    library = Path(found.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return library if library.exists() else None


@contextmanager
def start_world(folder: Path, setting: Setting, *, recovery: bool = True) -> Iterator[World]:
    """
    Start a stack.

    :param folder: for everything that it leaves.
    :param setting: which one.
    :param recovery: whether the recovery DAG is there.
    """
    folder.mkdir(parents=True)
    folder.chmod(0o711)
    world = World(folder, OPTIONS[setting], recovery=recovery)
    if setting in OFF:
        shift_clocks(world, OFF[setting])
    try:
        world.start()
        yield world
    finally:
        world.stop()


def shift_clocks(world: World, by: str) -> None:
    """
    Have Airflow and everything under it read a wrong time; PostgreSQL and this process read the right one.

    :param by: as libfaketime takes it.
    """
    library = faketime()
    assert library is not None, "look for it first"
    shifted = {
        "LD_PRELOAD": str(library),
        "FAKETIME": by,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    server = world.stack.airflow
    prepare, wait_healthy = server.prepare, server._wait_healthy

    def prepare_shifted() -> None:
        before = {name: os.environ.get(name) for name in shifted}
        os.environ.update(shifted)
        try:
            prepare()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def wait_healthy_shifted(started: datetime) -> None:
        # Its heartbeats are as wrong as its clock.
        wait_healthy(started - timedelta(minutes=11))

    server.prepare = prepare_shifted  # type: ignore[method-assign]
    server._wait_healthy = wait_healthy_shifted  # type: ignore[method-assign]
