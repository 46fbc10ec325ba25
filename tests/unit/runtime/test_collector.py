"""The cycle collector's threshold while maps are at work, and after them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from airflow_aiflow.runtime.collector import CONTAINERS, fewer_collections
from airflow_aiflow.testing import flow


@pytest.fixture(autouse=True)
def as_before() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield (700, 10, 10)
    gc.set_threshold(*before)


def test_a_map_raises_it_and_gives_it_back(as_before: tuple[int, int, int]) -> None:
    with flow() as f:
        seen = f.map("look", lambda _: gc.get_threshold()[0], range(3))
        assert seen == [CONTAINERS] * 3
        assert gc.get_threshold() == as_before
        with pytest.raises(ZeroDivisionError):
            f.map("fail", lambda item: 1 // item, range(3))
    assert gc.get_threshold() == as_before


def test_of_maps_that_overlap_the_last_one_gives_it_back(as_before: tuple[int, int, int]) -> None:
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with fewer_collections():
            inside.set()
            assert go.wait(60)

    thread = threading.Thread(target=other)
    with fewer_collections():
        thread.start()
        assert inside.wait(60)
    assert gc.get_threshold()[0] == CONTAINERS
    go.set()
    thread.join()
    assert gc.get_threshold() == as_before


@pytest.mark.parametrize("own", [0, CONTAINERS * 2])
def test_what_the_process_has_set_itself_stays(own: int) -> None:
    gc.set_threshold(own, 5, 5)
    with fewer_collections():
        assert gc.get_threshold() == (own, 5, 5)
    assert gc.get_threshold() == (own, 5, 5)
