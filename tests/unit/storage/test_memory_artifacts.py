"""The switches of the store in memory; what it shares with the real one is in the contract."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from airflow_aiflow.exceptions import ArtifactUnavailableError
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore


def test_unavailable_stops_every_call_until_it_is_off() -> None:
    store = MemoryArtifactStore()
    value = store.put_value(b"x")
    file, _ = store.put_file(io.BytesIO(b"y"), media_type="text/plain")
    calls: list[Callable[[], object]] = [
        lambda: store.put_value(b"z"),
        lambda: store.get_value(value),
        lambda: store.put_file(io.BytesIO(b"z"), media_type="text/plain"),
        lambda: store.open_file(file),
        lambda: store.url(file, expires=60),
    ]
    store.unavailable = True
    for call in calls:
        with pytest.raises(ArtifactUnavailableError):
            call()
    store.unavailable = False
    for call in calls:
        call()


@pytest.mark.parametrize("switch", [MemoryArtifactStore.corrupt, MemoryArtifactStore.lose])
def test_what_is_not_there_can_not_be_spoilt(switch: Callable[[MemoryArtifactStore, bytes], None]) -> None:
    with pytest.raises(KeyError, match="nothing is stored"):
        switch(MemoryArtifactStore(), b"x" * 32)
