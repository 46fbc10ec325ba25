"""The stacks in which the cases are played."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.recovery import recovery_file
from tests.recovery.expected import Setting
from tests.recovery.world import AIRFLOW_DEFAULTS, World

#: LocalExecutor never gets the slot of a killed worker back: room for every case between two starts of the scheduler.
ROOM = {"core.parallelism": "12"}

#: Seconds scaled down, so that a case takes some instead of minutes; Airflow's own heartbeat time-out stays at 300 s.
SHORT = {
    "aiflow.lease_ttl": "6",
    "aiflow.heartbeat_interval": "2",
    "aiflow.stall_floor": "25",
    "scheduler.task_instance_heartbeat_timeout": "300",
    "scheduler.task_instance_heartbeat_timeout_detection_interval": "10",
    "scheduler.orphaned_tasks_check_interval": "300",
    **ROOM,
}

OPTIONS: dict[Setting, dict[str, str]] = {"short": SHORT, "default": {**AIRFLOW_DEFAULTS, **ROOM}, "clocks": SHORT}


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
    file = recovery_file.SHIPPED.read_text() if setting == "default" else recovery_file.SHORT
    world = World(folder, OPTIONS[setting], recovery=file if recovery else None)
    if setting == "clocks":
        make_clocks_movable(world)
    try:
        world.start()
        yield world
    finally:
        world.stop()


def make_clocks_movable(world: World) -> None:
    """
    Load libfaketime into Airflow and everything under it, set to the right time: a task process may set its own.

    Airflow's scheduler and its database must agree on the time (a run whose ``run_after`` is later by the database's
    clock is not started), so that only processes of tasks can be off.
    """
    library = faketime()
    assert library is not None, "look for it first"
    # It reads the variable anew every second, so that a process can change it for itself; at each call costs far more.
    loaded = {
        "LD_PRELOAD": str(library),
        "FAKETIME": "+0",
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    prepare = world.stack.airflow.prepare

    def prepare_loaded() -> None:
        before = {name: os.environ.get(name) for name in loaded}
        os.environ.update(loaded)
        try:
            prepare()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    world.stack.airflow.prepare = prepare_loaded  # type: ignore[method-assign]
