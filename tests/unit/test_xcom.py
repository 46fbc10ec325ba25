"""Large results: what XCom holds, what a reader gets."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from airflow.sdk.definitions.mappedoperator import is_mappable_value
from airflow.sdk.serde import deserialize, serialize

from airflow_aiflow.durable.ports import ArtifactStore
from airflow_aiflow.hooks import aiflow
from airflow_aiflow.plugin import AiflowPlugin
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.xcom import StoredDict, StoredList, StoredValue, stored_if_large

LIMIT = 100


@pytest.fixture(name="store", autouse=True)
def _store() -> Iterator[ArtifactStore]:
    store = MemoryArtifactStore()
    aiflow._once_per_process("artifacts", "aiflow_artifacts", lambda: store)
    AiflowPlugin.on_load()
    yield store
    aiflow.close_all()


def pushed(value: Any, store: ArtifactStore, secret: str | None = None) -> Any:
    return stored_if_large(value, limit=LIMIT, store=lambda: store, find_secret=lambda _plain: secret)[0]


def through_xcom(value: Any) -> Any:
    """Take the way that Airflow takes, with the network in between."""
    return deserialize(json.loads(json.dumps(serialize(value))))


LARGE: list[tuple[Any, type[StoredValue]]] = [
    ([f"page {number}" for number in range(100)], StoredList),
    (tuple(range(100)), StoredList),
    ({f"doc {number}": [number, None, 1.5] for number in range(50)}, StoredDict),
    ("text " * 100, StoredValue),
    ({"a", "b", "x" * 200}, StoredValue),
    ([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 20, StoredList),
]


@pytest.mark.parametrize(("value", "kind"), LARGE, ids=[kind.__name__ + str(n) for n, (_, kind) in enumerate(LARGE)])
def test_a_reader_gets_the_value_itself(store: ArtifactStore, value: Any, kind: type[StoredValue]) -> None:
    reference = pushed(value, store)
    assert type(reference) is kind
    assert len(json.dumps(serialize(reference))) < 300
    found = through_xcom(reference)
    assert type(found) is type(value)
    assert found == value


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "small", [1, 2], {"a": 1}, ("a", "b")])
def test_what_is_small_stays_itself(store: ArtifactStore, value: Any) -> None:
    assert pushed(value, store) is value


def test_inside_the_limit_and_above_it_a_value_means_the_same(store: ArtifactStore) -> None:
    small: dict[Any, Any] = {1: "one", "pair": (1, 2)}
    large = {**small, "text": "x" * LIMIT}
    assert through_xcom({**through_xcom(pushed(large, store))}) == {**through_xcom(small), "text": "x" * LIMIT}


def test_a_task_can_be_mapped_over_what_is_pushed(store: ArtifactStore) -> None:
    for value in (LARGE[0][0], LARGE[2][0]):
        reference = pushed(value, store)
        assert is_mappable_value(reference)
        assert len(reference) == len(value)
    assert isinstance(pushed(LARGE[0][0], store), Sequence)
    assert isinstance(pushed(LARGE[2][0], store), Mapping)


def test_in_the_process_that_made_it_a_reference_reads_like_the_value(store: ArtifactStore) -> None:
    as_list, as_dict = pushed(LARGE[0][0], store), pushed(LARGE[2][0], store)
    assert (as_list[3], list(as_list)) == ("page 3", LARGE[0][0])
    assert (as_dict["doc 3"], dict(as_dict)) == ([3, None, 1.5], LARGE[2][0])
    assert "sha256=" in repr(as_list)


def test_a_secret_is_not_stored(store: ArtifactStore) -> None:
    assert pushed(LARGE[0][0], store, secret="[3]") is LARGE[0][0]


def test_what_airflow_cannot_push_is_left_to_its_own_error(store: ArtifactStore) -> None:
    value = ["x" * LIMIT, object()]
    assert pushed(value, store) is value


def test_a_newer_form_is_refused(store: ArtifactStore) -> None:
    plain: dict[str, Any] = serialize(pushed(LARGE[0][0], store))
    plain["__version__"] = 2
    with pytest.raises(TypeError, match="newer airflow-aiflow"):
        deserialize(plain)
