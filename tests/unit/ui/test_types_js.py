"""The pages have no build, and are checked as if they had one: TypeScript reads the types in their comments."""

from __future__ import annotations

import subprocess

from tests.ui.npm import FOLDER, MODULES, need_modules

#: Seconds; it takes three.
PATIENCE = 120


def check() -> subprocess.CompletedProcess[str]:
    """Check every module of the pages."""
    command = [str(MODULES / ".bin" / "tsc"), "--project", "tsconfig.json"]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_every_type_fits() -> None:
    need_modules()
    done = check()
    assert done.returncode == 0, done.stdout
