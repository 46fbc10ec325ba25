"""
Check the protocol's model with spin, and that each of its safeguards is needed.

    python tools/verify.py            all runs: some minutes on two cores
    python tools/verify.py --quick    what fits into the tests
    python tools/verify.py --json     one JSON object on the last line
    python tools/verify.py --accept   write down the statements' present form, after the model was compared with them

A run that must hold explores every state there is. A run that must fail takes one safeguard away and must end at the
property that the safeguard keeps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "verify" / "protocol.pml"
TABLE = ROOT / "verify" / "README.md"
STATEMENTS = ROOT / "airflow_aiflow" / "storage" / "sql"

HOW_TO_INSTALL = """make verify needs the model checker spin and a C compiler, and did not find: {missing}.
    Debian, Ubuntu:  sudo apt-get install spin gcc libc6-dev
    Fedora:          sudo dnf install spin gcc
    macOS:           brew install spin"""

#: Seconds for one run. The largest needs a quarter of it on a quiet machine.
RUN_SECONDS = 1800

#: MiB of states for one run; two run at once.
MEMORY = 6000

#: The longest path that is followed, in steps; the model's own are about 250 long.
DEPTH = 100_000

#: Property -> how the checker words its violation.
PROPERTIES = {
    "P0": "(ti>=last_ti)",
    "P1": "(allowed>0)",
    "P1S": "(applied<=1)",
    "P3": "!(brought[i])",
    "P4": "(started<",
    "P5": "(fence==f)",
    "P6": "(current==",
    "P7": "||twice)",
}

#: What the checker says where it did not look at every state.
_CUT = re.compile(r"max search depth too small|MEMLIM|out of memory")

ASK, HOLD, RETRY, RECONCILE = "POLICY=0", "POLICY=1", "POLICY=2", "POLICY=3"


@dataclass(frozen=True)
class Run:
    """
    Describe one run.

    :param name: what it is about.
    :param flags: definitions for the model.
    :param breaks: the property that must fail; ``None``: all hold.
    :param quick: flags of the small form of it; ``None``: there is none.
    """

    name: str
    flags: tuple[str, ...]
    breaks: str | None = None
    quick: tuple[str, ...] | None = None


HOLDS = (
    Run("as designed: ask", (ASK, "MAXP=3"), quick=(ASK, "MAXP=2")),
    Run("as designed: hold", (HOLD, "MAXP=3"), quick=(HOLD, "MAXP=2")),
    Run("as designed: retry", (RETRY, "MAXP=3"), quick=(RETRY, "MAXP=2")),
    Run("as designed: reconcile", (RECONCILE, "MAXP=3"), quick=(RECONCILE, "MAXP=2")),
    Run("released once by a person", (HOLD, "RELEASE", "MAXP=3"), quick=(HOLD, "RELEASE", "MAXP=2")),
    Run("recovery alone brings it back: ask", (ASK, "RECOVERY", "MAXP=4")),
    Run("recovery alone brings it back: retry", (RETRY, "RECOVERY", "MAXP=4"), quick=(RETRY, "RECOVERY", "MAXP=3")),
    Run("Airflow's form keeps its first question", (ASK, "FIRSTFORM", "RECOVERY", "MAXP=5")),
    Run("opaque target, owner verified dead: ask", (ASK, "STRICT", "VERIFIED", "MAXP=3")),
    Run("opaque target, owner verified dead: probe", (RECONCILE, "STRICT", "VERIFIED", "SURE", "MAXP=3")),
    Run("target that dedups", (RETRY, "STRICT", "DEDUP", "MAXP=3")),
)

FAILS = (
    Run("fence test removed", (ASK, "NOFENCE", "MAXP=3"), "P5", quick=(ASK, "NOFENCE", "MAXP=3")),
    Run("fence test removed, decisions name no intent", (RECONCILE, "NOFENCE", "NOP5", "ANYDOUBT", "MAXP=3"), "P6"),
    Run("fence read, not locked", (ASK, "UNLOCKED", "MAXP=3"), "P5", quick=(ASK, "UNLOCKED", "MAXP=3")),
    Run("one row for an effect and its intents", (RETRY, "SINGLEROW", "MAXP=3"), "P3"),
    Run("outcomes taken from open intents only", (RETRY, "OPENONLY", "MAXP=3"), "P3"),
    Run("watchdog ends an attempt in mid-act", (RETRY, "MIDKILL", "MAXP=3"), "P3"),
    Run("recovery skips open intents", (RETRY, "RECOVERY", "SKIPOPEN", "MAXP=3"), "P4"),
    Run("order of tries looked at outside the statement", (ASK, "NOSEEN", "MAXP=3"), "P0"),
    Run("decisions name no intent", (ASK, "ANYDOUBT", "MAXP=5"), "P6"),
    Run("the form's first question, no numbers on it", (ASK, "FIRSTFORM", "NONUMBER", "RECOVERY", "MAXP=5"), "P6"),
    Run("doubles are not noted", (RETRY, "QUIET", "MAXP=3"), "P7"),
    Run("opaque target, frozen owner, truthful people", (RECONCILE, "STRICT", "MAXP=3"), "P1S"),
)


@dataclass(frozen=True)
class Result:
    """Hold what a run gave: the property that failed (``None``: all hold), or why it is no result."""

    run: Run
    broke: str | None
    states: int
    seconds: float
    trouble: str = ""

    @property
    def right(self) -> bool:
        """Whether it is what must be."""
        return not self.trouble and self.broke == self.run.breaks


def check(run: Run, flags: tuple[str, ...], optimise: str) -> Result:
    """
    Build the checker for a run and let it search.

    :param run: which one.
    :param flags: its definitions.
    :param optimise: the compiler's option; a short search does not earn back a long compilation.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aiflow-verify-") as folder:
        for command in (
            ["spin", "-a", *(f"-D{flag}" for flag in flags), str(MODEL)],
            ["gcc", optimise, "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY}", "-o", "pan", "pan.c"],
        ):
            built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if built.returncode != 0 or not (Path(folder) / "pan.c").exists():
                return Result(run, None, 0, 0.0, f"{command[0]}: {(built.stdout + built.stderr)[-300:]}")
        try:
            searched = subprocess.run(
                ["./pan", f"-m{DEPTH}", "-n"], cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Result(run, None, 0, time.monotonic() - began, f"not done within {RUN_SECONDS} s")
    return read(run, searched.stdout, time.monotonic() - began)


def read(run: Run, output: str, seconds: float) -> Result:
    """
    Read the checker's report; its exit code is 0 either way.

    :param run: which one.
    :param output: what it printed.
    :param seconds: how long it took.
    """
    errors = re.search(r"errors: (\d+)", output)
    stored = re.search(r"(\d[\d.e+]*) states, stored", output)
    states = int(float(stored[1])) if stored else 0
    cut = next((line for line in output.splitlines() if _CUT.search(line)), "")
    violated = re.search(r"assertion violated ([^\n]*)", output)
    if errors is None or cut or (violated is None) != (errors[1] == "0"):
        return Result(run, None, states, seconds, f"no complete search: {cut or output[-300:]}")
    if violated is None:
        return Result(run, None, states, seconds)
    said = violated[1].replace(" ", "")
    broke = next((name for name, words in PROPERTIES.items() if words in said), f"unknown property {said}")
    return Result(run, broke, states, seconds)


def check_all(*, quick: bool) -> list[Result]:
    """
    Make all runs, one on each core; memory for two is there.

    :param quick: only those that have a small form, in it.
    """
    runs = [run for run in (*HOLDS, *FAILS) if not quick or run.quick is not None]
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        made = [
            pool.submit(check, run, (run.quick or ()) if quick else run.flags, "-O1" if quick else "-O2")
            for run in runs
        ]
        return [each.result() for each in made]


def table(results: list[Result]) -> str:
    """
    Lay results out for people.

    :param results: of all runs.
    """
    lines = [f"{'run':<50}{'must':<10}{'gave':<10}{'states':>12}{'seconds':>9}"]
    for each in results:
        must = f"{each.run.breaks} fails" if each.run.breaks else "hold"
        gave = "?" if each.trouble else f"{each.broke} fails" if each.broke else "hold"
        mark = "" if each.right else "   <- WRONG " + each.trouble
        lines.append(f"{each.run.name:<50}{must:<10}{gave:<10}{each.states:>12,}{each.seconds:>9.1f}{mark}")
    return "\n".join(lines)


# --- the map of the model's blocks to the statements ---

_ROW = re.compile(r"^\| `(?P<block>\w+)` \| `(?P<file>\w+\.sql)` \| `(?P<seal>[0-9a-f]{12}|)` \|", re.MULTILINE)


def seal(statement: str) -> str:
    """
    Hash a statement's meaning: comments and white space do not count.

    :param statement: the SQL.
    """
    bare = " ".join(re.sub(r"--[^\n]*", "", statement).split())
    return hashlib.sha256(bare.encode()).hexdigest()[:12]


def mapped() -> dict[str, tuple[str, str]]:
    """Read the table: statement file -> (block of the model, seal of the statement that it was compared with)."""
    return {row["file"]: (row["block"], row["seal"]) for row in _ROW.finditer(TABLE.read_text(encoding="utf-8"))}


def accept() -> None:
    """Write each statement's present seal into the table."""

    def renewed(row: re.Match[str]) -> str:
        now = seal((STATEMENTS / row["file"]).read_text(encoding="utf-8"))
        return f"| `{row['block']}` | `{row['file']}` | `{now}` |"

    TABLE.write_text(_ROW.sub(renewed, TABLE.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="make verify", description=__doc__.splitlines()[1])
    parser.add_argument("--quick", action="store_true", help="only what takes seconds")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object on the last line")
    parser.add_argument("--accept", action="store_true", help="the model was compared with the statements")
    arguments = parser.parse_args()
    if arguments.accept:
        accept()
        return 0
    missing = [program for program in ("spin", "gcc") if shutil.which(program) is None]
    if missing:
        print(HOW_TO_INSTALL.format(missing=", ".join(missing)), file=sys.stderr)
        return 2
    results = check_all(quick=arguments.quick)
    print(table(results))
    wrong = [each.run.name for each in results if not each.right]
    print(f"{len(results)} runs, {len(wrong)} wrong")
    if arguments.json:
        print(json.dumps({"runs": len(results), "states": sum(each.states for each in results), "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
