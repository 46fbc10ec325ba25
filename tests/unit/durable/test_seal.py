"""A row that was edited, copied or moved is refused by name."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from airflow_aiflow.durable.seal import seal, verify
from airflow_aiflow.exceptions import SealError

ROW: dict[str, Any] = {
    "key": None,
    "execution": "7",
    "generation": 1,
    "step_key": b"k" * 32,
    "request_fingerprint": b"f" * 32,
    "result_hash": b"r" * 32,
    "recorded_at": 1_764_000_000_000_001,
}
OTHER: dict[str, Any] = {
    "key": b"other",
    "execution": "8",
    "generation": 2,
    "step_key": b"K" * 32,
    "request_fingerprint": b"F" * 32,
    "result_hash": b"R" * 32,
    "recorded_at": 1_764_000_000_000_002,
}


@pytest.mark.parametrize("key", [None, b"secret", b"k" * 100])
def test_a_row_as_it_was_written_is_accepted(key: bytes | None) -> None:
    sealed = seal(**ROW | {"key": key})
    assert len(sealed) == 32
    verify(sealed, **ROW | {"key": key})
    without_time = ROW | {"key": key, "recorded_at": None}
    verify(seal(**without_time), **without_time)


@pytest.mark.parametrize("key", [None, b"secret"])
@pytest.mark.parametrize("part", OTHER)
def test_any_change_is_refused(part: str, key: bytes | None) -> None:
    row = ROW | {"key": key}
    with pytest.raises(SealError, match=r"'split'.*execution"):
        verify(seal(**row), **row | {part: OTHER[part]}, step="split")


def test_a_time_can_not_be_left_out() -> None:
    with pytest.raises(SealError):
        verify(seal(**ROW), **ROW | {"recorded_at": None})


def test_a_damaged_or_missing_seal_is_refused() -> None:
    for sealed in (b"", b"x", seal(**ROW)[:31], seal(**ROW) + b"\0", bytes(32)):
        with pytest.raises(SealError, match="step key 6b6b6b6b6b6b "):
            verify(sealed, **ROW)


def test_without_the_key_nobody_makes_a_seal_that_the_key_accepts() -> None:
    row = ROW | {"key": b"secret"}
    with pytest.raises(SealError, match="sealed without a key, and seal_key is set now"):
        verify(seal(**ROW), **row)
    with pytest.raises(SealError, match="another seal_key"):
        verify(seal(**ROW | {"key": b"guess"}), **row)


def test_nothing_moves_between_neighbours_unseen() -> None:
    seen: dict[bytes, tuple[Any, ...]] = {}
    texts = (b"", b"1", b"11", b"\x00" * 8)
    for execution, step_key, fingerprint, result in itertools.product(("", "1", "11"), texts, texts, texts):
        for generation, at in itertools.product((1, 11), (None, 0, 1)):
            row = (execution, generation, step_key, fingerprint, result, at)
            sealed = seal(
                key=None,
                execution=execution,
                generation=generation,
                step_key=step_key,
                request_fingerprint=fingerprint,
                result_hash=result,
                recorded_at=at,
            )
            assert seen.setdefault(sealed, row) == row
