"""
Fourteen faults around one effect and four model calls: what ours does, and what common-ai's durable agent does.

    make peer-report                    ours as processes, theirs in a real Airflow: some minutes
    make peer-report ARGS=--ours        ours alone
    make peer-report ARGS=--json        one JSON object on the last line

Ours: an agent by ``flow.agent``; each attempt is a process of its own, with the counters that Airflow gives
(``tests/crash/life.py``). Theirs: the
same workflow as an ``AgentOperator(durable=True)`` with three tools, against the stand-in model server, in an Airflow
that this starts. What the stand-in can't say (two tool calls at once) and what takes longer than Airflow's own
time-outs is not run here: those cells show what was measured before, in brackets.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from tests.crash.forks import Forks
from tests.peer import ours

CELL = "{effects}/{calls}"


@dataclass(frozen=True)
class Fault:
    """
    Describe one scenario.

    :param key: of both sides' scenarios.
    :param what: for people.
    :param ours: what ours must give: effects applied, model calls billed.
    :param before: what was measured of theirs before, on common-ai 1.0.0.
    """

    key: str
    what: str
    ours: tuple[int, int]
    before: str


#: Paid twice is only what a person cleared after its success, and what another run, a changed prompt or other tools ask
#: anew.
FAULTS = (
    Fault("later_step_killed", "a later step is killed, then retry", (1, 4), "1/4"),
    Fault("killed_after_commit", "killed after the effect committed, before it was recorded", (1, 4), "2/4"),
    Fault("raises_after_commit", "the tool raises after its commit (lost reply)", (1, 4), "2/4"),
    Fault("fails_twice_then_clear", "fails twice, then clear", (1, 4), "1/4"),
    Fault("killed_twice_then_clear", "killed twice, then clear", (1, 4), "3/4"),
    Fault("clear_after_success", "clear after success", (1, 8), "2/8"),
    Fault("second_run", "second run, same business key", (1, 8), "2/8"),
    Fault("failed_run_then_new_run", "failed run, then a new run", (1, 7), "2/7"),
    Fault("prompt_changed", "system prompt changed between attempts", (1, 7), "2/7"),
    Fault("tool_added", "a tool added between attempts", (1, 7), "2/7"),
    Fault("sibling_raises", "parallel calls, a sibling raises while the charge is in flight", (1, 3), "2/3"),
    Fault("cleared_in_flight", "a person clears while the charge is in flight", (1, 4), "2/5"),
    Fault("frozen_and_thawed", "worker frozen, declared dead, thawed after the retry succeeded", (1, 4), "2/4"),
    Fault("answer_forged", "recorded model answer edited, then clear", (1, 3), "forged answer taken"),
)


#: Of theirs the others are played; why not these, for the report.
NOT_PLAYED = {
    "sibling_raises": "needs two tool calls in one answer; the stand-in model asks for one at a time",
    "frozen_and_thawed": "Airflow takes a frozen worker for dead after minutes of its own, longer than all others take",
    "answer_forged": "needs an edit of Airflow's own task state by a person, which this report has no way to make",
}


def run_ours(folder: Path) -> dict[str, Any]:
    """
    Play all scenarios on our side.

    :param folder: for everything that they leave.
    :return: key -> what was seen, or why nothing was.
    """
    with PostgresServer(folder / "pg") as server, ObjectStoreServer(folder / "s3") as objects:
        dsn = server.fresh_database()
        upgrade(dsn)
        store = {
            "endpoint": objects.endpoint,
            "access_key": objects.access_key,
            "secret_key": objects.secret_key,
            "bucket": objects.bucket(),
            "secure": False,
        }

        def work(key: str, own: Path) -> dict[str, Any]:
            return ours.play(key, ours.fresh(own, dsn, store))

        return {each.job: each.value for each in Forks(work, folder / "lives").run([fault.key for fault in FAULTS])}


def cell(seen: Any) -> str:
    """
    Write one cell.

    :param seen: of one side's scenario.
    """
    if not isinstance(seen, dict):
        return str(seen)
    return CELL.format(**seen) + (" asked" if seen.get("asked") else "")


def wrong(mine: dict[str, Any]) -> list[str]:
    """
    Compare ours with what must be.

    :param mine: key -> what was seen.
    """
    return [
        f"{fault.key}: {cell(mine.get(fault.key))}, must be {fault.ours[0]}/{fault.ours[1]}"
        for fault in FAULTS
        if not isinstance(mine.get(fault.key), dict)
        or (mine[fault.key]["effects"], mine[fault.key]["calls"]) != fault.ours
    ]


def report(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """
    Lay both sides out.

    :param mine: of ours.
    :param theirs: of the peer; empty where it was not run.
    """
    lines = [f"{'fault (effects applied / model calls billed)':<68}{'ours':<16}{'AgentOperator(durable=True)'}"]
    for fault in FAULTS:
        peer = cell(theirs[fault.key]) if fault.key in theirs else f"[{fault.before}]"
        lines.append(f"{fault.what:<68}{cell(mine.get(fault.key)):<16}{peer}")
    lines.append("asked: a truthful person was asked whether the charge happened. [..]: measured before, not now.")
    if theirs:
        lines.append("Not played on the peer's side:")
        lines += [f"  {fault.what}: {NOT_PLAYED[fault.key]}" for fault in FAULTS if fault.key not in theirs]
    return "\n".join(lines)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="make peer-report", description="Play fourteen faults on both sides.")
    parser.add_argument("--ours", action="store_true", help="ours alone: no Airflow is started")
    parser.add_argument("--keep", action="store_true", help="keep what they left")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    arguments = parser.parse_args()
    folder, began = Path(tempfile.mkdtemp(prefix="aiflow-peer-")), time.monotonic()
    theirs: dict[str, Any] = {}
    try:
        mine = run_ours(folder / "ours")
        if not arguments.ours:
            from tests.peer.theirs import run_theirs

            theirs = run_theirs(folder / "theirs")
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(report(mine, theirs))
    found = wrong(mine)
    print(*found, sep="\n")
    seconds = time.monotonic() - began
    print(f"{len(mine)} scenarios of ours, {len(theirs)} of theirs, in {seconds:.0f} s; {len(found)} wrong")
    if arguments.keep:
        print(f"kept: {folder}")
    if arguments.json:
        print(json.dumps({"ours": mine, "theirs": theirs, "wrong": found}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
