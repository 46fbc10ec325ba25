"""What happened between two attempts, as Airflow 3.3 was seen to count."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from airflow_aiflow.durable.attempt import Counters
from airflow_aiflow.durable.sign import Sign, begins_generation, read_sign


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


@pytest.mark.parametrize("sign", list(Sign))
def test_only_a_run_made_again_or_a_wish_starts_anew(sign: Sign) -> None:
    assert begins_generation(sign, "auto") is (sign is Sign.MADE_AGAIN)
    assert begins_generation(sign, "resume") is (sign is Sign.MADE_AGAIN)
    assert begins_generation(sign, "fresh") is (sign in (Sign.MADE_AGAIN, Sign.CLEARED))
