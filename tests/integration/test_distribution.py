"""What people install: the wheel holds the whole package and nothing else, and its entry points lead somewhere."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import airflow_aiflow
from tests.unit.source_tree import PACKAGE, ROOT, tracked_files

GROUPS = {"apache_airflow_provider", "airflow.plugins", "console_scripts"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel by the backend that pip would call."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def metadata_file(wheel: zipfile.ZipFile, name: str) -> str:
    """Return a file of the wheel's metadata."""
    (path,) = [each for each in wheel.namelist() if each.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    paths = {path.relative_to(ROOT).as_posix() for path in tracked_files()}
    wanted = {path for path in paths if path.startswith(f"{PACKAGE}/")}
    assert f"{PACKAGE}/py.typed" in wanted
    assert wanted - set(wheel.namelist()) == set()


def test_holds_the_client_for_pages_as_it_stands(wheel: zipfile.ZipFile) -> None:
    assert wheel.read(f"{PACKAGE}/ui/example/aiflow.js") == (ROOT / "clients/js/aiflow.js").read_bytes()


def test_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {Path(name).parts[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {PACKAGE}
    assert [name for name in wheel.namelist() if name.endswith((".pyc", ".log"))] == []


def test_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    fields = Parser().parsestr(metadata_file(wheel, "METADATA"))
    assert fields["Name"] == "airflow-aiflow"
    assert fields["Version"] == airflow_aiflow.__version__
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == "<3.14,>=3.11"
    assert metadata_file(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()


def test_registers_with_airflow(wheel: zipfile.ZipFile) -> None:
    assert {f"[{group}]" for group in GROUPS} <= set(metadata_file(wheel, "entry_points.txt").split())


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_entry_points_lead_somewhere(group: str) -> None:
    points = importlib.metadata.distribution("airflow-aiflow").entry_points.select(group=group)
    assert points
    assert all(callable(point.load()) for point in points)
