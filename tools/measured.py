"""
Write what was measured into the README and the page about cost: the table of `make bench`, a sentence of `make demo`.

    make bench
    make demo ARGS=--json | tail -n 1 > bench/demo.json
    python tools/measured.py
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results.json"
DEMO = ROOT / "bench" / "demo.json"
PAGES = ("README.md", "docs/operations/sizing.md")

EMPTY = "No numbers yet: `make bench` writes `bench/results.json`, then `python tools/measured.py` fills this in."
_PLACE = re.compile(r"(<!-- measured: begin [^\n]*-->\n).*?(<!-- measured: end -->)", re.DOTALL)


def table(results: Mapping[str, Any], demo: Mapping[str, Any] | None) -> str:
    """Return the table, and the sentence where there was a demo.

    :param results: what `bench/results.json` holds.
    :param demo: what `bench/demo.json` holds.
    """
    times = results["times_ms"]
    rows = [
        ("a recorded step over a bare one-row INSERT and its COMMIT", _ratio(results["step_ratio"]), "at most 1.5"),
        ("an effect over the same", _ratio(results["effect_ratio"]), "at most 2.7"),
        ("a step over an INSERT that commits itself, in one round trip", _ratio(results["step_autocommit_ratio"]), "-"),
        ("an effect over the same", _ratio(results["effect_autocommit_ratio"]), "-"),
        (
            "a resume of 10,000 recorded steps, until the first live step, over one SELECT of the same rows",
            _ratio(results["resume_ratio"]),
            "at most 3",
        ),
        ("memory for that resume", f"{results['resume_memory_mib']:.0f} MiB", "under 100 MiB"),
        ("modules that a DAG file adds to those of `airflow.sdk`", str(results["parse_modules"]), "fewer than 40"),
    ]
    if results.get("dbos_step_ratio"):
        rows.insert(
            4, ("for comparison: a DBOS step over the bare INSERT and COMMIT", _ratio(results["dbos_step_ratio"]), "-")
        )
    rows += _counted(results)
    versions = results["versions"]
    each = ", ".join(f"{name} {_pair(times[name])}" for name in ("bare", "autocommit", "step", "effect"))
    return "\n".join(
        [
            "| what | measured | aim |",
            "|---|---|---|",
            *(f"| {what} | {value} | {aim} |" for what, value, aim in rows),
            "",
            f"Medians. In milliseconds, median and 95th percentile: {each}.",
            f"Python {versions['python']}, Airflow {versions['apache-airflow']}, psycopg {versions['psycopg']}.",
            *(["", sentence(demo)] if demo else []),
        ]
    )


def _counted(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of what a run of the bench may not have measured yet."""
    return [(what, form(results[name]), aim) for name, what, form, aim in COUNTED if name in results]


def sentence(demo: Mapping[str, Any]) -> str:
    """Say what the outside counters saw in the demo.

    :param demo: what `bench/demo.json` holds.
    """
    times = "once" if demo["kills"] == 1 else f"{demo['kills']} times"
    made = f"{demo['calls_made']} made ({demo['calls_plain']} without recorded steps)"
    sent = f"{demo['emails']} e-mail, {demo['records']} record"
    return (
        f"`make demo` reviewed {demo['documents']} documents of {demo['pages']} pages and was killed {times}:\n"
        f"{demo['calls_needed']} model calls needed, {made}, {sent}, "
        f"{demo['seconds_lost']:.1f} s lost."
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _count(value: float) -> str:
    return f"{value:.3g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _mib(value: float) -> str:
    return f"{value:.0f} MiB"


def _pair(times: Mapping[str, float]) -> str:
    return f"{times['median']:.2f} and {times['p95']:.2f}"


def filled(text: str, results: Mapping[str, Any], demo: Mapping[str, Any] | None) -> str:
    """Return a page with the table in its place.

    :param text: the page.
    :param results: what `bench/results.json` holds.
    :param demo: what `bench/demo.json` holds; ``None``: there was none.
    """
    written, places = _PLACE.subn(lambda place: f"{place[1]}{table(results, demo)}\n{place[2]}", text)
    if places != 1:
        raise SystemExit(f"the page has {places} places for the table, one is wanted")
    return written


#: Key of a result, what it says, its form, the aim.
COUNTED: tuple[tuple[str, str, Callable[[Any], str], str], ...] = (
    (
        "step_alone_ratio",
        "a step over the INSERT measured alone, when client and server share a processor",
        _ratio,
        "-",
    ),
    ("effect_alone_ratio", "an effect over that", _ratio, "-"),
    (
        "transaction_ratio",
        "a transactional effect over a bare commit of its statement",
        _ratio,
        "at most 1.6",
    ),
    ("effect_replay_queries", "queries for the replay of an effect that was done", _count, "none"),
    (
        "cleared_mapped_queries",
        "queries of one of 1,200 mapped tasks, all done, after a clear",
        _count,
        "the same for any number of them",
    ),
    ("map_ratio", "items of `flow.map` a second over bare one-row commits", _ratio, "at least 5"),
    ("map_wait_ratio", "the same with 32 threads that each wait for a commit", _ratio, "at least 2.5"),
    ("map_replay_per_s", "items a second that a killed map replays", _whole, "at least 100,000"),
    ("map_calls_repeated", "calls of it that are made again, of 90,000", _whole, "at most 500, one flush"),
    (
        "map_memory_mib",
        "memory of a worker for a map of 1,000,000 items of 1 KiB, results not kept",
        _mib,
        "under 300 MiB",
    ),
    ("growth_ratio", "a step in a ledger of 2,000,000 rows over one in an empty ledger", _ratio, "at most 1.2"),
    (
        "recovery_pass_ms",
        "one pass of recovery: what it asks the ledger with 1,000 at work and 50 stalled, in milliseconds",
        _count,
        "under 50, with ten million done",
    ),
    (
        "overview_ms",
        "the slowest query of the overview, in milliseconds",
        _count,
        "under 50, with ten million steps recorded",
    ),
    (
        "submit_ratio",
        "a submit until its DAG run exists over one commit and one run by Airflow's own API",
        _ratio,
        "at most 1.3",
    ),
    ("event_ms", "from an event's commit to the eyes of who follows it, in milliseconds", _count, "under 100"),
    ("event_without_notify_ms", "the same where the database can't tell", _count, "under 1,000"),
    ("streams_memory_mib", "memory of an API server's worker for 2,000 streams", _mib, "under 200 MiB"),
    ("streams_connections", "its connections to the ledger meanwhile", _whole, "the same for any number"),
)


def main() -> int:
    """Fill the pages."""
    if not RESULTS.exists():
        print(f"{RESULTS} is not there: run make bench first", file=sys.stderr)
        return 1
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    demo = json.loads(DEMO.read_text(encoding="utf-8")) if DEMO.exists() else None
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), results, demo), encoding="utf-8")
        print(f"wrote the table into {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
