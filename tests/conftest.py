"""Fixtures for every test: the shared real servers, and an Airflow home that is nobody's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

# Before anything imports Airflow, which makes its home where the variable says, or in the user's own.
_home = tempfile.mkdtemp(prefix="aiflow-airflow-home-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = _home
for _name in [name for name in os.environ if name.startswith("AIRFLOW__")]:
    del os.environ[_name]

pytest_plugins = ("tests.stack",)

#: What waits for a real Airflow, by the process that it goes to: most of that time is waiting, so that two beside the
#: rest keep two cores busy. A file or folder belongs to the first that it fits.
_STACKS = {
    # Stacks of their own, each ended with its tests.
    "own stacks": (
        "airflow/test_demo.py",
        "airflow/test_demo_batch.py",
        "airflow/test_embedded_stack.py",
        "ui",
        "recovery",
        "integration/cli/test_stack_commands.py",
        "integration/demo",
        "crash/test_peer.py",
    ),
    # The one that all tests of this folder share, and Airflow's parts without a stack.
    "shared stack": ("airflow", "integration/airflow"),
}


def _group(nodeid: str) -> str:
    """Say which tests go to one process: those that share a stack, those that start one, and else those of a file."""
    file = nodeid.partition("::")[0]
    inside = Path(file).relative_to("tests")
    return next((group for group, places in _STACKS.items() if any(map(inside.is_relative_to, places))), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """
    Where tests run in several processes, keep those that share a stack in one of them.

    The others go by file, so that what a file's tests share is made once. (xdist's own groups are marks that it writes
    into names, which pytest 9 does not let it.)
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByStack(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByStack(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the processes of the stacks begin at once; the other one keeps the order, the fast ones first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _group(item.nodeid) not in _STACKS)
