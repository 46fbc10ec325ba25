"""What happened between two attempts, as Airflow 3.3 was seen to count."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from airflow_aiflow.durable.attempt import NOTHING_ABOVE, Counters, OnClear, digest_upstream
from airflow_aiflow.durable.sign import Evidence, Sign, begins_generation, is_requeue, is_top, read_sign, start


def ti(number: int) -> UUID:
    """Make a UUIDv7 whose order is that of the numbers."""
    return UUID(int=(number << 80) | (7 << 76) | (0x2 << 62))


DUE = datetime(2026, 1, 1, tzinfo=UTC)
LATER = DUE + timedelta(hours=1)
STORED = Counters(ti(5), try_number=2, max_tries=3, retries=3, clear_number=1, run_after=DUE)

TABLE = [
    ("a reschedule, a deferral, an answer", {}, Sign.SAME),
    ("the same, and the task's retries were edited", {"max_tries": 9, "retries": 9}, Sign.SAME),
    ("an automatic retry", {"ti_id": ti(6), "try_number": 3}, Sign.RETRY),
    ("Airflow's race: the same ti id with a higher try", {"try_number": 3}, Sign.RETRY),
    ("a retry whose id an earlier clock made", {"ti_id": ti(4), "try_number": 3}, Sign.RETRY),
    ("a clear", {"ti_id": ti(6), "try_number": 3, "max_tries": 5, "clear_number": 2}, Sign.CLEARED),
    (
        "another task was cleared, or this one while it ran",
        {"ti_id": ti(6), "try_number": 3, "clear_number": 2},
        Sign.AMBIGUOUS,
    ),
    ("a clear that left the run's own row alone (reset_dag_runs=false)", {"try_number": 3, "max_tries": 5}, Sign.RETRY),
    (
        "a clear after the retries were edited, to the same max_tries",
        {"try_number": 3, "clear_number": 2, "retries": 1},
        Sign.AMBIGUOUS,
    ),
    ("two clears before a start", {"ti_id": ti(7), "try_number": 3, "max_tries": 5, "clear_number": 3}, Sign.CLEARED),
    (
        "a clear by a machine whose clock is behind",
        {"ti_id": ti(4), "try_number": 3, "max_tries": 5, "clear_number": 2},
        Sign.CLEARED,
    ),
    ("only the retries were edited", {"ti_id": ti(6), "try_number": 3, "max_tries": 5}, Sign.RETRY),
    (
        "the run was deleted and made again",
        {"ti_id": ti(9), "try_number": 1, "clear_number": 0, "run_after": LATER},
        Sign.MADE_AGAIN,
    ),
    ("... with the same run_after", {"ti_id": ti(9), "try_number": 1, "clear_number": 0}, Sign.MADE_AGAIN),
    ("... before anything was cleared", {"ti_id": ti(9), "try_number": 1}, Sign.MADE_AGAIN),
    ("... and has been retried since", {"ti_id": ti(9), "try_number": 3, "run_after": LATER}, Sign.MADE_AGAIN),
    ("an older attempt that starts late", {"ti_id": ti(4), "try_number": 1}, Sign.OLDER),
    ("the same ti id with a lower try", {"try_number": 1}, Sign.OLDER),
]


@pytest.mark.parametrize(("now", "sign"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_signs(now: dict[str, object], sign: Sign) -> None:
    assert read_sign(STORED, replace(STORED, **now)) is sign  # type: ignore[arg-type]


def test_the_first_attempt() -> None:
    assert read_sign(None, STORED) is Sign.FIRST


def test_no_order_of_the_rows_gives_an_older_attempt_a_start() -> None:
    """A run made again is told by any of three signs; only an attempt without one of them can be older."""
    again = replace(STORED, ti_id=ti(4), try_number=1, clear_number=0)
    assert read_sign(STORED, again) is Sign.MADE_AGAIN
    assert read_sign(STORED, replace(STORED, ti_id=ti(4), try_number=1, run_after=LATER)) is Sign.MADE_AGAIN
    assert read_sign(STORED, replace(STORED, ti_id=ti(4), try_number=1)) is Sign.OLDER


WORDS: tuple[OnClear, ...] = ("auto", "resume", "fresh")
SEEN = Evidence(heard=True, top=True)

#: (what happened, sign, evidence) -> what each of the three words does: True starts anew.
GENERATIONS: list[tuple[str, Sign, Evidence, tuple[bool, bool, bool]]] = [
    ("a clear of a success that was seen, nothing above ran again", Sign.CLEARED, SEEN, (True, False, True)),
    ("... something above ran again, or can't be read", Sign.CLEARED, Evidence(heard=True), (False, False, True)),
    ("a clear of what failed, or was not heard of", Sign.CLEARED, Evidence(top=True), (False, False, True)),
    ("a clear of neither", Sign.CLEARED, Evidence(), (False, False, True)),
    ("our own recovery", Sign.CLEARED, Evidence(requeued=True), (False, False, False)),
    ("our own recovery of a success", Sign.CLEARED, replace(SEEN, requeued=True), (False, False, False)),
    ("a clear with the wish to start anew", Sign.CLEARED, Evidence(wish="fresh"), (True, True, True)),
    ("a clear with the wish to resume", Sign.CLEARED, replace(SEEN, wish="resume"), (False, False, False)),
    ("a clear while it ran, with the wish to start anew", Sign.AMBIGUOUS, Evidence(wish="fresh"), (True, True, True)),
    ("the run was made again", Sign.MADE_AGAIN, Evidence(wish="resume"), (True, True, True)),
    ("an automatic retry", Sign.RETRY, replace(SEEN, wish="fresh"), (False, False, False)),
    ("another task was cleared", Sign.AMBIGUOUS, SEEN, (False, False, False)),
    ("a reschedule", Sign.SAME, replace(SEEN, wish="fresh"), (False, False, False)),
    ("the first attempt", Sign.FIRST, replace(SEEN, wish="fresh"), (False, False, False)),
]


@pytest.mark.parametrize(
    ("sign", "evidence", "anew"), [row[1:] for row in GENERATIONS], ids=[r[0] for r in GENERATIONS]
)
def test_what_starts_anew(sign: Sign, evidence: Evidence, anew: tuple[bool, bool, bool]) -> None:
    assert tuple(begins_generation(sign, word, evidence) for word in WORDS) == anew


@pytest.mark.parametrize("sign", sorted(set(Sign) - {Sign.CLEARED, Sign.AMBIGUOUS, Sign.MADE_AGAIN}))
def test_nothing_but_a_clear_or_a_new_run_starts_anew(sign: Sign) -> None:
    for flags in itertools.product((True, False), (True, False), (True, False), (None, *WORDS)):
        for word in WORDS:
            assert not begins_generation(sign, word, Evidence(*flags))


def test_what_a_clear_did_is_explained_and_a_retry_needs_no_words() -> None:
    for _, sign, evidence, anew in GENERATIONS:
        for word, begins in zip(WORDS, anew, strict=True):
            why = start(sign, word, evidence)[1]
            if sign is Sign.CLEARED or begins:
                assert why
            else:
                assert why is None
    assert start(Sign.CLEARED, "auto", SEEN)[1] != start(Sign.CLEARED, "auto", Evidence(heard=True))[1]


@pytest.mark.parametrize(
    ("mark", "now", "ours"),
    [
        (None, 2, False),
        ((1, 2), 2, True),
        ((2, 3), 2, False),  # no clear came after the mark
        ((0, 1), 2, False),  # one more than ours: a person's
        ((3, 4), 2, False),
        ((1, 4), 3, True),  # our later clears of other tasks of the run
        ((1, 4), 5, False),
    ],
)
def test_a_requeue_is_ours_where_no_clear_but_ours_followed_the_mark(
    mark: tuple[int, int] | None, now: int, ours: bool
) -> None:
    assert is_requeue(replace(STORED, clear_number=now), mark) is ours


def above(*ran: tuple[str, int, float | None]) -> bytes:
    return digest_upstream(ran)


RAN = above(("list", -1, 1.000001), ("load", 0, 2.5), ("load", 1, 2.25))


@pytest.mark.parametrize(
    ("stored", "now", "top"),
    [
        (NOTHING_ABOVE, NOTHING_ABOVE, True),
        (RAN, RAN, True),
        (RAN, above(("load", 1, 2.25), ("list", -1, 1.000001), ("load", 0, 2.5)), True),
        (RAN, above(("list", -1, 1.000002), ("load", 0, 2.5), ("load", 1, 2.25)), False),
        (RAN, above(("list", -1, 1.000001), ("load", 0, 2.25), ("load", 1, 2.5)), False),
        (RAN, above(("list", -1, 1.000001), ("load", 0, 2.5)), False),
        (RAN, above(("list", -1, 1.000001), ("load", 0, 2.5), ("load", 1, 2.25), ("load", 2, 1.0)), False),
        (RAN, above(("list", -1, 1.000001), ("load", 0, 2.5), ("load", 1, 2.25), ("skipped", -1, None)), True),
        (RAN, above(("list", -1, 1.000001), ("load", 0, 2.5), ("load", 1, 2.25), ("marked", -1, 0.0)), True),
        (NOTHING_ABOVE, RAN, False),
        (None, RAN, False),
        (RAN, None, False),
        (None, None, False),
    ],
)
def test_the_top_of_a_clear(stored: bytes | None, now: bytes | None, top: bool) -> None:
    assert is_top(stored, now) is top
