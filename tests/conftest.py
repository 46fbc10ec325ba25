"""Fixtures for every test: the shared real servers, and an Airflow home that is nobody's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Where tests run in several processes, keep all that start a stack in one of them, which begins with them.

    The others go by file, so that what a file's tests share is made once, and still the fast ones first.
    """
    if not hasattr(config, "workerinput"):
        return
    here = Path(__file__).parent
    for item in items:
        file = item.path.relative_to(here)
        stack = any(file.is_relative_to(one) for one in _STACKS)
        item.add_marker(pytest.mark.xdist_group("stacks" if stack else file.as_posix()))
    items.sort(key=lambda item: next(mark.args[0] for mark in item.iter_markers("xdist_group")) != "stacks")
