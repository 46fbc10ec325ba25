"""Cursors of readers: short whatever they have read, and whole again with their base."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from airflow_aiflow.durable.event_cursor import KEPT, LONGEST, MOST_PLACES, Cursor, Event, shortened, whole

SEED = 20261130


class Shelf:
    """Keep bases in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def keep(self, places: str) -> str:
        name = f"{len(self.kept):032x}"
        self.kept[name] = places
        return name

    def get(self, base: str) -> str | None:
        return self.kept.get(base)


def event(pk: int, fence: int, seq: int) -> Event:
    return Event(pk, fence, seq, "task", -1, 1, datetime.now(UTC), "step", None)


def test_a_short_cursor_is_the_long_one_at_each_event() -> None:
    rng, shelf = random.Random(SEED), Shelf()
    plain, short = Cursor(), Cursor()
    seqs: dict[tuple[int, int], int] = {}
    fences: dict[int, int] = {}
    for _ in range(5_000):
        pk = rng.randrange(1, 400)
        if rng.random() < 0.02:
            fences[pk] = fences.get(pk, 1) + 1
        place = pk, fences.get(pk, 1)
        seqs[place] = seqs.get(place, 0) + 1
        one = event(*place, seqs[place])
        plain.pass_(one)
        short.pass_(one)
        if short.long:
            shortened(short, shelf)
        text = str(short)
        assert len(text) < 1_500
        if rng.random() < 0.05:
            read = whole(Cursor.read(text), shelf)
            assert read.places == plain.places
            short = read  # a client that was cut off goes on from it
    assert len(plain.places) > 5 * MOST_PLACES
    assert 10 < len(shelf.kept) < 200, "no base for each event"


def test_a_base_that_is_kept_no_longer_is_told() -> None:
    shelf, cursor = Shelf(), Cursor()
    for pk in range(MOST_PLACES + 1):
        cursor.pass_(event(pk, 1, 1))
    assert cursor.long
    shortened(cursor, shelf)
    shelf.kept.clear()
    with pytest.raises(ValueError, match="begin without"):
        whole(Cursor.read(str(cursor)), shelf)


@pytest.mark.parametrize(
    "text", ["~", "x~1.1.1", f"{'0' * 31}~", f"{'0' * 32}~x", f"{'0' * 32}~1.1.1~", "1.1", "1.1.1-"]
)
def test_what_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="none of ours"):
        Cursor.read(text)


def test_a_cursor_of_few_executions_needs_no_base() -> None:
    cursor = Cursor()
    for pk in range(MOST_PLACES):
        cursor.pass_(event(pk, 1, 36))
    assert not cursor.long
    assert Cursor.read(str(cursor)).places == cursor.places


def test_positions_are_those_that_looking_through_all_of_them_gives() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(60):
        cursor, plain, shelf = Cursor(), dict[tuple[int, int], int](), Shelf()
        for _ in range(120):
            place = rng.randrange(1, 6), rng.randrange(1, 9)
            cursor.pass_(event(*place, seq := rng.randrange(1, 1_000)))
            plain[place] = seq
            for pk, fence in sorted(plain):
                if sum(other > fence for one, other in plain if one == pk) >= KEPT:
                    del plain[pk, fence]
            chance = rng.random()
            if chance < 0.05:
                shortened(cursor, shelf)
            elif chance < 0.1:
                cursor = whole(Cursor.read(str(cursor)), shelf)
            elif chance < 0.15:
                cursor = cursor.copy()
            elif chance < 0.2:
                left = set(rng.sample(range(1, 6), 4))
                cursor.only(left)
                plain = {one: seq for one, seq in plain.items() if one[0] in left}
                shortened(cursor, shelf)  # what a base holds is forgotten with the base
            assert cursor.places == plain


def test_a_new_attempt_is_passed_without_a_look_at_all_other_executions() -> None:
    class Counted(dict[tuple[int, int], int]):
        looks = 0

        def __iter__(self) -> Iterator[tuple[int, int]]:
            Counted.looks += 1
            return super().__iter__()

    cursor = Cursor(Counted())
    for pk in range(500):
        cursor.pass_(event(pk, 1, 1))
    assert Counted.looks <= 1


def test_a_kept_base_of_very_many_executions_can_be_read_again() -> None:
    shelf, cursor = Shelf(), Cursor()
    for pk in range(7_000):
        cursor.pass_(event(10**6 + pk, 1, 10**4))
    shortened(cursor, shelf)
    assert len(cursor.all_places) > LONGEST
    assert whole(Cursor.read(str(cursor)), shelf).places == cursor.places


def test_what_a_client_hands_in_is_limited() -> None:
    with pytest.raises(ValueError, match="too long"):
        Cursor.read("-".join(f"{pk}.1.1" for pk in range(LONGEST // 4)))
