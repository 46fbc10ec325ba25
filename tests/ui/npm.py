"""What checks the pages and comes from npm: TypeScript and axe, fetched at the first use. Nothing of it is served."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from functools import cache

import pytest

from tests.unit.source_tree import ROOT

FOLDER = ROOT / "tests" / "ui" / "js"
MODULES = FOLDER / "node_modules"

#: Seconds to fetch 30 MB.
PATIENCE = 240


def need_modules() -> None:
    """
    Fetch what ``package-lock.json`` names, where it is not there.

    Without npm, or without the registry, the test is skipped with the reason; where the suite runs unattended it fails.
    """
    why = _fetched()
    if why is None:
        return
    if "CI" in os.environ:
        pytest.fail(why)
    pytest.skip(why)


@cache
def _fetched() -> str | None:
    """Give what is in the way; ``None``: they are there."""
    lock, stamp = FOLDER / "package-lock.json", MODULES / ".package-lock.json"
    with (FOLDER / ".fetching").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if stamp.exists() and stamp.stat().st_mtime >= lock.stat().st_mtime:
            return None
        npm = shutil.which("npm")
        if npm is None:
            return "there is no npm: apt-get install nodejs npm"
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return "npm ci did not come to an end: is there a registry in reach?"
        return None if done.returncode == 0 else f"npm ci failed: {done.stderr.strip()[-300:]}"
