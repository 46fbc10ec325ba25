"""A slice of the report in one stack: what is killed comes home once, what a person ended stays ended."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.recovery.expected import CASES, Case, Seen, complaints
from tests.recovery.settings import start_world
from tests.recovery.situations import PLAYS

#: All are played at once, on a machine that may be at other tests: the report judges seconds, this judges counts.
SLACK = math.inf

QUICK = [case for case in CASES if case.quick]


@pytest.fixture(scope="module")
def played() -> Iterator[dict[str, Future[Seen]]]:
    """Play them beside each other: most of their time is Airflow's."""
    with (
        tempfile.TemporaryDirectory(prefix="aiflow-recovery-", ignore_cleanup_errors=True) as folder,
        start_world(Path(folder) / "short", "short") as world,
        ThreadPoolExecutor(len(QUICK)) as pool,
    ):
        yield {case.key: pool.submit(PLAYS[case.key], world) for case in QUICK}


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.key)
def test_a_stall_is_found_and_comes_home_once(played: dict[str, Future[Seen]], case: Case) -> None:
    seen = played[case.key].result()
    print(seen)
    assert complaints(case, seen, slack=SLACK) == []
