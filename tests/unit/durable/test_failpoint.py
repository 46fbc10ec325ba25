"""Crash sites: off by default, exact when armed, and never waited for in vain."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_aiflow.durable.failpoint import ALL

PASS_TWICE = """
from airflow_aiflow.durable.failpoint import failpoint
failpoint("after_act", "mail"); print("one")
failpoint("before_act", "mail"); print("two")
failpoint("after_act", "other"); print("three")
failpoint("after_act", "mail"); print("four")
"""


def run(armed: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "AIFLOW_FAILPOINT"}
    if armed is not None:
        environment["AIFLOW_FAILPOINT"] = armed
    return subprocess.run(
        [sys.executable, "-uc", PASS_TWICE], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("armed", "printed"),
    [
        (None, ["one", "two", "three", "four"]),
        ("after_act", []),
        ("after_act@mail", []),
        ("after_act@other", ["one", "two"]),
        ("after_act:2", ["one", "two"]),
        ("after_act@mail:2", ["one", "two", "three"]),
        ("after_act@nobody", ["one", "two", "three", "four"]),
    ],
)
def test_the_process_dies_where_it_is_told_to(armed: str | None, printed: list[str]) -> None:
    done = run(armed)
    assert done.stdout.split() == printed
    assert done.returncode == (0 if len(printed) == 4 else -signal.SIGKILL)


def test_a_name_that_is_no_crash_site_is_an_error() -> None:
    done = run("after_lunch")
    assert done.returncode == 1
    assert "AIFLOW_FAILPOINT names 'after_lunch'; known: after_act" in done.stderr


def test_a_process_stops_where_it_is_told_to_and_goes_on(tmp_path: Path) -> None:
    environment = os.environ | {"AIFLOW_FAILPOINT": "before_act@mail=stop"}
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen([sys.executable, "-uc", PASS_TWICE], env=environment, stdout=out)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert (tmp_path / "out").read_text().split() == ["one"]
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0
        assert (tmp_path / "out").read_text().split() == ["one", "two", "three", "four"]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_an_action_that_is_none_is_an_error() -> None:
    assert "wants 'nap' at before_act" in run("before_act=nap").stderr


def test_every_crash_site_is_in_the_code() -> None:
    package = Path(__file__).parents[3] / "airflow_aiflow"
    passed = {name for path in package.rglob("*.py") for name in re.findall(r'failpoint\(\s*"(\w+)"', path.read_text())}
    assert passed == ALL
