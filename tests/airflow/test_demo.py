"""`aiflow demo` as a person runs it: a process of its own, a real Airflow, a real SIGKILL, counts taken outside."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_aiflow.demo.outcome import MAX_WORKERS
from airflow_aiflow.demo.pages import PAGE
from airflow_aiflow.local.airflow_client import wait_for

#: Seconds; a quiet machine needs half a minute.
PATIENCE = 280.0
DOCUMENTS, PAGES_EACH = 5, 6


@pytest.fixture
def contracts(tmp_path: Path) -> Path:
    """Give five documents of six pages, and what can't be read."""
    folder = tmp_path / "contracts"
    (folder / "annexes").mkdir(parents=True)
    for number in range(DOCUMENTS):
        text = "\n\n".join(
            f"Section {page} of contract {number}. " + "Terms apply. " * (PAGE * 4 // 5 // 13)
            for page in range(PAGES_EACH)
        )
        (folder / "annexes" / f"contract-{number}.txt").write_text(text)
    (folder / "empty.md").touch()
    (folder / "latin.txt").write_bytes("Müller".encode("cp1252"))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    return folder


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "airflow_aiflow.cli", "demo", "--home", str(home), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home.parent)


def left_running(home: Path) -> list[psutil.Process]:
    """Give the processes that work in the folder or were started for it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = [*(process.info["cmdline"] or ()), process.info["cwd"] or ""]
        if process.pid != psutil.Process().pid and any(str(home) in word for word in words):
            found.append(process)
    return found


@pytest.fixture
def home(stack_folder: Path) -> Iterator[Path]:
    """Give a folder for the demo; whatever a failed test leaves running there is ended."""
    home = stack_folder / "demo"
    yield home
    for process in left_running(home):
        process.kill()


def test_a_killed_review_pays_nothing_twice_and_sends_one_mail(home: Path, contracts: Path) -> None:
    demo = start(home, "--json", "--input", str(contracts), "--kill-at", "30,60")
    out, err = demo.communicate(timeout=PATIENCE)
    print(err)
    [line] = out.splitlines()
    facts = json.loads(line)
    assert facts["broken"] == []
    assert demo.returncode == 0
    assert (facts["state"], facts["kills"], facts["attempts"]) == ("succeeded", 2, 3)
    assert (facts["documents"], facts["pages"], facts["skipped"]) == (DOCUMENTS, DOCUMENTS * PAGES_EACH, 3)
    assert facts["calls_needed"] == DOCUMENTS * (PAGES_EACH + 1)
    assert facts["calls_needed"] <= facts["calls_made"] <= facts["calls_needed"] + 2 * MAX_WORKERS
    assert (facts["emails"], facts["records"]) == (1, 1)
    first, second = (kill["calls"] for kill in facts["killed"])
    assert 0 < first < second < facts["calls_needed"]
    assert facts["calls_plain"] == facts["calls_needed"] + first + second

    page = Path(facts["report"]).read_text()
    assert page.count("<details>") == DOCUMENTS
    with Path(facts["table"]).open(newline="") as file:
        notes = {row["document"]: row["note"] for row in csv.DictReader(file) if row["state"] == "skipped"}
    assert notes["empty.md"] == "is empty"
    assert notes["latin.txt"] == "is not UTF-8: byte 0xFC at position 1"
    assert notes["broken.pdf"].startswith("is a damaged PDF")
    assert left_running(home) == []


@pytest.mark.parametrize("when", ["starting", "ready after"])
def test_an_interrupted_demo_leaves_nothing(home: Path, when: str) -> None:
    demo = start(home, "--limit", "1")
    assert demo.stdout is not None
    assert next(line for line in demo.stdout if when in line)
    demo.send_signal(signal.SIGINT)
    rest, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 130, rest + err
    assert "Traceback" not in err
    wait_for(lambda: None if left_running(home) else True, "the end of all parts", 30)
