"""References to artifacts: data, identity, and the store they read from."""

from __future__ import annotations

import io
import threading
from contextvars import copy_context
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from airflow_aiflow.durable import artifact
from airflow_aiflow.durable.artifact import (
    PAYLOAD_MEDIA_TYPE,
    TEXT_MEDIA_TYPE,
    ArtifactRef,
    ArtifactRefs,
    bind_store,
    current_store,
    set_default_store,
)
from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.payload import decode, encode
from airflow_aiflow.durable.payload_adapters import Adapters
from airflow_aiflow.exceptions import ArtifactDamagedError, NoFlowError, PayloadDecodeError
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore

DIGEST = "ab" * 32
REF = ArtifactRef(DIGEST, 12, "text/plain", "a/../b %2F\u0000.txt", "s3://bucket/file/ab/" + DIGEST)


def saved(store: MemoryArtifactStore, data: bytes, media_type: str, name: str | None = None) -> ArtifactRef:
    sha256, size = store.put_file(io.BytesIO(data), media_type=media_type)
    return ArtifactRef(sha256.hex(), size, media_type, name, store.uri(sha256))


@pytest.mark.parametrize("ref", [REF, ArtifactRef(DIGEST, 0, "a/b", None, "")])
def test_plain_data_gives_it_back(ref: ArtifactRef) -> None:
    assert ArtifactRef.from_plain(ref.to_plain()) == ref


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"sha256": DIGEST},
        {**REF.to_plain(), "more": 1},
        {**REF.to_plain(), "sha256": "../../etc/passwd"},
        {**REF.to_plain(), "sha256": DIGEST.upper()},
        {**REF.to_plain(), "sha256": b"x" * 64},
        {**REF.to_plain(), "size": -1},
        {**REF.to_plain(), "size": True},
        {**REF.to_plain(), "size": "12"},
        {**REF.to_plain(), "name": 5},
        {**REF.to_plain(), "uri": None},
    ],
)
def test_what_is_no_reference_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(PayloadDecodeError, match="no ArtifactRef"):
        ArtifactRef.from_plain(plain)


def test_it_can_not_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        REF.size = 3  # type: ignore[misc]


def test_it_counts_by_its_bytes_alone() -> None:
    other = ArtifactRef(DIGEST, 12, "text/html", "other", "s3://elsewhere")
    assert REF.__aiflow_fingerprint__() == other.__aiflow_fingerprint__() == DIGEST
    changed = ArtifactRef("cd" * 32, 12, REF.media_type, REF.name, REF.uri)
    assert fingerprint([REF]) == fingerprint([other]) != fingerprint([changed])
    assert fingerprint(REF) != fingerprint(DIGEST)


# --- in results ---


def test_a_result_holds_references_as_they_are() -> None:
    value = {"report": REF, "all": [REF, (REF, None)], ("a", 1): REF}
    encoded = encode(value)
    assert not encoded.flattened
    assert decode(encoded.data) == value


def test_a_dict_that_looks_like_a_reference_stays_a_dict() -> None:
    value = [REF.to_plain(), {"$artifact": REF.to_plain()}]
    assert decode(encode(value).data) == value


def test_a_damaged_stored_reference_is_refused() -> None:
    damaged = encode(REF).data.replace(DIGEST.encode(), b"../../x")
    with pytest.raises(PayloadDecodeError):
        decode(damaged)
    with pytest.raises(PayloadDecodeError):
        decode(b'{"$artifact":[1,2]}')


def test_a_process_without_the_adapter_says_so() -> None:
    with pytest.raises(PayloadDecodeError, match="artifact"):
        decode(encode(REF).data, adapters=Adapters())


def test_a_subclass_is_not_taken_for_a_reference() -> None:
    class More(ArtifactRef):
        pass

    assert not ArtifactRefs().matches(More(DIGEST, 1, "a/b", None, ""))


# --- reading ---


@pytest.fixture
def store() -> MemoryArtifactStore:
    return MemoryArtifactStore()


def test_bytes_texts_and_values_come_back_as_they_were(store: MemoryArtifactStore) -> None:
    value = {"a": (1, 2.0), "when": timedelta(seconds=3)}
    with bind_store(lambda: store):
        assert saved(store, b"\xff\x00", "application/octet-stream").load() == b"\xff\x00"
        assert saved(store, "grüße\u0000".encode(), TEXT_MEDIA_TYPE).load() == "grüße\u0000"
        assert saved(store, b"<p>", "text/html; charset=UTF-8").load() == "<p>"
        assert saved(store, b"caf\xe9", "text/plain; charset=utf-8859").load() == b"caf\xe9"
        assert saved(store, b"caf\xe9", "text/plain; charset=latin-1").load() == b"caf\xe9"
        assert saved(store, b"a,b", "text/csv").load() == b"a,b"
        assert saved(store, encode(value).data, PAYLOAD_MEDIA_TYPE).load() == value


def test_it_opens_and_links(store: MemoryArtifactStore) -> None:
    ref = saved(store, b"hello", "text/plain", "../x")
    with bind_store(lambda: store):
        with ref.open() as stream:
            assert stream.read(2) == b"he"
        assert ref.url() == ref.url(expires=60) == ref.url(timedelta(days=7)) == "data:text/plain;base64,aGVsbG8="


def test_a_reference_with_another_size_is_an_edited_one(store: MemoryArtifactStore) -> None:
    ref = saved(store, b"hello", "text/plain")
    edited = ArtifactRef(ref.sha256, 4, ref.media_type, ref.name, ref.uri)
    with bind_store(lambda: store), pytest.raises(ArtifactDamagedError, match="has 5 bytes where its reference says 4"):
        edited.load()


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the store of Airflow's servers, which a test before may have had our plugin set."""
    monkeypatch.setattr(artifact, "_default", None)


def test_outside_of_a_flow_it_says_where_to_read(no_server: None) -> None:
    for read in (REF.load, REF.open, REF.url, current_store):
        with pytest.raises(NoFlowError, match="inside a durable task"):
            read()


def test_a_binding_ends_with_its_block_and_nests(store: MemoryArtifactStore, no_server: None) -> None:
    inner = MemoryArtifactStore()
    with bind_store(lambda: store):
        with bind_store(lambda: inner):
            assert current_store() is inner
        assert current_store() is store
    with pytest.raises(NoFlowError):
        current_store()


def test_a_default_serves_the_whole_process_where_no_flow_does(store: MemoryArtifactStore) -> None:
    bound, found = MemoryArtifactStore(), []
    set_default_store(lambda: store)
    try:
        with bind_store(lambda: bound):
            assert current_store() is bound
            carried = copy_context()
            for target in (lambda: carried.run(current_store), current_store):
                thread = threading.Thread(target=lambda target=target: found.append(target()))
                thread.start()
                thread.join()
    finally:
        set_default_store(None)
    assert found == [bound, store]


def test_a_store_is_made_only_when_needed() -> None:
    def fail() -> MemoryArtifactStore:
        raise AssertionError("made too early")

    with bind_store(fail):
        assert REF.to_plain()
        with pytest.raises(AssertionError, match="too early"):
            REF.open()
