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

#: Folders and files whose tests wait for a real Airflow, or for a stack that they start: one at a time is enough for a
#: machine, and most of their time is waiting.
_STACKS = (
    "airflow",
    "ui",
    "recovery",
    "integration/airflow",
    "integration/cli/test_stack_commands.py",
    "integration/demo",
    "crash/test_peer.py",
)


def _group(nodeid: str) -> str:
    """Say which tests go to one process: those that start a stack, and those of a file."""
    file = nodeid.partition("::")[0]
    inside = Path(file).relative_to("tests")
    return "stacks" if any(inside.is_relative_to(one) for one in _STACKS) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """
    Where tests run in several processes, keep all that start a stack in one of them.

    The others go by file, so that what a file's tests share is made once. (xdist's own groups are marks that it writes
    into names, which pytest 9 does not let it.)
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByStack(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByStack(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the process of the stacks begin at once; the other one keeps the order, the fast ones first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _group(item.nodeid) != "stacks")
