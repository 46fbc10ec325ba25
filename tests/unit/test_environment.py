"""The environment that make builds: when it counts as up to date, and what is said where no Python fits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.source_tree import ROOT
from tools import environment


@pytest.fixture
def stamped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the program at a folder whose environment has just been built with the extra `dev`; return the stamp."""
    venv = tmp_path / ".venv"
    python, stamp, source = venv / "bin" / "python", venv / "stamp.json", tmp_path / "pyproject.toml"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    source.write_text("[project]\n")
    for name, value in {"VENV": venv, "PYTHON": python, "STAMP": stamp, "SOURCES": (source,)}.items():
        monkeypatch.setattr(environment, name, value)
    built = environment.Stamp(environment.source_key(), ("dev",), str(venv), environment.version_label())
    stamp.write_text(json.dumps(built._asdict()))
    return stamp


def edit(stamp: Path, **changes: object) -> None:
    """Change fields of the stamp."""
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | changes))


def test_what_was_just_built_is_current(stamped: Path) -> None:
    assert environment.is_current({"dev"})


def test_another_extra_is_not_there_yet(stamped: Path) -> None:
    assert not environment.is_current({"dev", "bench"})


def test_a_changed_source_asks_for_another_build(stamped: Path) -> None:
    (stamped.parent.parent / "pyproject.toml").write_text("[project]\nname='x'\n")
    assert not environment.is_current({"dev"})


def test_a_moved_folder_asks_for_another_build(stamped: Path) -> None:
    edit(stamped, path="/elsewhere/.venv")
    assert not environment.is_current({"dev"})


def test_another_python_asks_for_another_build(stamped: Path) -> None:
    edit(stamped, python="3.12" if environment.version_label() != "3.12" else "3.13")
    assert not environment.is_current({"dev"})


def test_a_python_that_is_gone_asks_for_another_build(stamped: Path) -> None:
    environment.PYTHON.unlink()
    assert not environment.is_current({"dev"})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"key": 1, "extras": null}'])
def test_an_interrupted_build_is_not_current(stamped: Path, text: str) -> None:
    stamped.write_text(text)
    assert not environment.is_current({"dev"})


def test_a_half_made_environment_does_not_work(tmp_path: Path) -> None:
    assert not environment.works(tmp_path / "python")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert not environment.works(broken)


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make as a newcomer does, outside of the make that may be running these tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=kept, capture_output=True, text=True, timeout=60)


def test_no_python_that_fits_is_said_clearly() -> None:
    done = make("test", "PYTHON=python0.1")
    assert done.returncode != 0
    assert "No Python 3.11, 3.12 or 3.13 found (tried: python0.1)" in done.stderr


def test_make_alone_lists_the_commands() -> None:
    done = make()
    assert done.returncode == 0
    assert all(f"make {name} " in done.stdout for name in ("demo", "test", "bench", "check", "docs"))
