"""
Every kind of stall, provoked for real: how often it was requeued, what the world saw, and how long it took.

    make recovery-report                          all cases, in stacks of their own: half an hour
    make recovery-report ARGS="--only hung"       one of them, or several: --only hung --only orphan
    make recovery-report ARGS=--alone             what Airflow does without recovery, measured too: half an hour more
    make recovery-report ARGS=--json              one JSON object on the last line

What must be seen stands in ``expected.py``. In brackets: what Airflow 3.3 took by itself, as it was measured before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.recovery.expected import CASES, Case, Seen, complaints, late
from tests.recovery.settings import OPTIONS, faketime, start_world
from tests.recovery.situations import PLAYS


def play(cases: Sequence[Case], folder: Path) -> dict[str, Seen | str]:
    """
    Play cases of one setting in one stack.

    :param folder: for everything that they leave.
    :return: key -> what was seen, or why nothing was.
    """
    setting = cases[0].setting
    if setting == "clocks" and faketime() is None:
        return {case.key: "not played: it needs `pip install libfaketime`" for case in cases}
    seen: dict[str, Seen | str] = {}
    with start_world(folder, setting) as world:
        for case in cases:
            rounds: list[Seen] = []
            try:
                for number in range(case.times):
                    began = time.monotonic()
                    rounds.append(PLAYS[case.key](world))
                    found = [*complaints(case, rounds[-1]), *late(case, rounds[-1])] or ["as it must be"]
                    took = time.monotonic() - began
                    times = f"found {_seconds(rounds[-1].detect)}, goes on {_seconds(rounds[-1].go_on)}"
                    print(
                        f"  {case.key} {number + 1}/{case.times} in {took:.0f} s: {times}: {'; '.join(found)}",
                        flush=True,
                    )
                seen[case.key] = middle(rounds)
            except Exception as error:  # one case's trouble is its row's
                traceback.print_exc()
                seen[case.key] = f"!{type(error).__name__}: {error}"
            world.stack.records.set_faults()
    return seen


def middle(rounds: Sequence[Seen]) -> Seen:
    """
    Give the median of the seconds, the worst of the rest.

    :param rounds: of one case.
    """
    worst = max(rounds, key=lambda each: (len(each.wrong), each.requeues, each.effects, each.calls, each.attempts))
    detect = [each.detect for each in rounds if each.detect is not None]
    go_on = [each.go_on for each in rounds if each.go_on is not None]
    kinds = tuple(dict.fromkeys(kind for each in rounds for kind in each.kinds))
    return Seen(
        worst.requeues,
        worst.effects,
        worst.calls,
        worst.attempts,
        worst.state,
        kinds,
        median(detect) if detect else None,
        median(go_on) if len(go_on) == len(rounds) else None,
        tuple(dict.fromkeys(wrong for each in rounds for wrong in each.wrong)),
    )


def report(seen: dict[str, Seen | str], alone: dict[str, str]) -> str:
    """
    Lay it out: measured, and what it must be where that differs.

    :param seen: key -> what was seen.
    :param alone: key -> what Airflow did by itself, measured now.
    """
    head = f"{'case':<72}{'requeues':>9}{'effects':>9}{'calls':>7}{'found s':>9}{'goes on s':>11}  Airflow alone"
    lines = [head]
    for case in CASES:
        if case.key not in seen:
            continue
        found = seen[case.key]
        beside = alone.get(case.key) or f"[{case.alone}]"
        if isinstance(found, str):
            lines.append(f"{case.what:<72}{found}")
            continue
        counts = f"{found.requeues:>9}{found.effects:>9}{found.calls:>7}"
        lines.append(f"{case.what:<72}{counts}{_seconds(found.detect):>9}{_seconds(found.go_on):>11}  {beside}")
    lines.append(
        "Seconds count from the kill (hung: from the request). [..]: measured before, with Airflow's defaults."
    )
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def wrong(seen: dict[str, Seen | str]) -> list[str]:
    """
    Compare all with what must be.

    :param seen: key -> what was seen.
    """
    found: list[str] = []
    for case in CASES:
        value = seen.get(case.key)
        if isinstance(value, Seen):
            found += complaints(case, value)
        elif value is not None and value.startswith("!"):
            found.append(f"{case.key}: {value}")
    return found


def speed(seen: dict[str, Seen | str]) -> dict[str, dict[str, float | bool | None]]:
    """
    Set the median seconds until a step goes on beside what they are meant to be.

    :param seen: key -> what was seen.
    """
    figures: dict[str, dict[str, float | bool | None]] = {}
    for case in CASES:
        found = seen.get(case.key)
        if case.aim is not None and isinstance(found, Seen):
            median_s = None if found.go_on is None else round(found.go_on, 2)
            figures[case.key] = {"median_s": median_s, "aim_s": case.aim, "reached": _reached(median_s, case.aim)}
    return figures


def _reached(took: float | None, aim: float) -> bool:
    return took is not None and took < aim


def delays(seen: dict[str, Seen | str]) -> list[str]:
    """
    Name what took longer than it usually does.

    :param seen: key -> what was seen.
    """
    return [each for case in CASES if isinstance(value := seen.get(case.key), Seen) for each in late(case, value)]


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="make recovery-report", description="Provoke every kind of stall for real.")
    parser.add_argument("--only", action="append", choices=[case.key for case in CASES], help="play this one alone")
    parser.add_argument("--setting", choices=list(OPTIONS), help="play what belongs to this stack alone")
    parser.add_argument("--alone", action="store_true", help="measure Airflow without recovery beside it")
    parser.add_argument("--keep", action="store_true", help="keep what the stacks left")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if not arguments.only or case.key in arguments.only]
    chosen = [case for case in chosen if arguments.setting in (None, case.setting)]
    folder, began = Path(tempfile.mkdtemp(prefix="aiflow-recovery-")), time.monotonic()
    seen: dict[str, Seen | str] = {}
    alone: dict[str, str] = {}
    try:
        for setting in OPTIONS:
            cases = [case for case in chosen if case.setting == setting]
            if cases:
                print(f"{setting}: {len(cases)} cases", flush=True)
                seen |= play(cases, folder / setting)
        if arguments.alone:
            from tests.recovery.alone import measure_alone

            alone = measure_alone([case for case in chosen if case.measurable], folder / "alone")
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(report(seen, alone))
    found, slow = wrong(seen), delays(seen)
    for key, figure in speed(seen).items():
        word = "reached" if figure["reached"] else "not reached"
        print(f"{key}: goes on after {figure['median_s']} s in the median, aim below {figure['aim_s']:g} s: {word}")
    print(*(f"late, not wrong: {each}" for each in slow), *(f"WRONG: {each}" for each in found), sep="\n")
    print(f"{len(seen)} cases in {time.monotonic() - began:.0f} s; {len(found)} wrong, {len(slow)} late")
    if arguments.keep:
        print(f"kept: {folder}")
    if arguments.json:
        seconds = {key: round(each.detect, 2) for key, each in seen.items() if isinstance(each, Seen) and each.detect}
        go_on = {key: round(each.go_on, 2) for key, each in seen.items() if isinstance(each, Seen) and each.go_on}
        facts = {"cases": len(seen), "wrong": found, "detect_seconds": seconds, "go_on_seconds": go_on}
        facts |= {"speed": speed(seen), "late": slow, "airflow_alone": alone}
        print(json.dumps(facts | {"not_played": [key for key, each in seen.items() if str(each).startswith("not ")]}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
