"""What the pages work out without a browser: every file of ``tests/ui/js`` by Node's own test runner."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from airflow_aiflow.durable.stall import KINDS
from tests.unit.source_tree import ROOT

TESTS = ROOT / "tests" / "ui" / "js"
STATIC = ROOT / "airflow_aiflow" / "ui" / "static"

#: Seconds for all of them; they take two.
PATIENCE = 120

NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None and "CI" not in os.environ, reason="there is no node: apt-get install nodejs")
def test_pure_functions_of_the_pages() -> None:
    files = sorted(str(path) for path in TESTS.glob("*.test.mjs"))
    assert files, f"no tests in {TESTS}"
    done = subprocess.run(
        [str(NODE), "--test", "--test-reporter=tap", *files],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=TESTS,
    )
    passed = re.search(r"^# pass (\d+)", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout[-6000:]
    assert passed, done.stdout[-2000:]
    assert int(passed[1]) >= len(files)


def test_the_pages_say_of_each_stall_what_recovery_says() -> None:
    words = (STATIC / "recovery_words.js").read_text(encoding="utf-8")
    found = dict(re.findall(r'^  (\w+): \{ label: .*, alone: "(.*)" \},$', words, re.MULTILINE))
    assert found == {kind.value: row.alone for kind, row in KINDS.items()}


def test_every_module_that_is_imported_is_served() -> None:
    missing = [
        f"{path.name}: {name}"
        for path in STATIC.glob("*.js")
        for name in re.findall(r"""from "\./([\w.]+)";""", path.read_text(encoding="utf-8"))
        if not (STATIC / name).is_file()
    ]
    assert not missing


def test_nothing_is_fetched_from_elsewhere() -> None:
    """Airflow runs where no other site is reached; what a page needs comes with it."""
    found = [
        f"{path.name}: {match}"
        for path in STATIC.iterdir()
        if path.suffix in (".js", ".css")
        for match in re.findall(r"https?://[\w.-]+", path.read_text(encoding="utf-8"))
    ]
    assert not found
