"""What every artifact store keeps to: run on the one in memory and on a real S3 server."""

from __future__ import annotations

import base64
import io
import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from airflow_aiflow.durable.artifact_parts import PartialReads
from airflow_aiflow.durable.ports import ArtifactStore
from airflow_aiflow.exceptions import (
    ArtifactDamagedError,
    ArtifactError,
    ArtifactMissingError,
    FlowOptionError,
    PayloadEncodeError,
)
from tests.artifact_world import ArtifactWorld, MemoryArtifactWorld, S3ArtifactWorld, content, sha

OCTETS = "application/octet-stream"
MIB = 1 << 20
#: Around what goes in one request, in two parts, and in many.
SIZES = [0, 1, 8 * MIB, 8 * MIB + 1, 17 * MIB]


@pytest.fixture(params=["memory", "s3"])
def world(request: pytest.FixtureRequest) -> Iterator[ArtifactWorld]:
    world: ArtifactWorld
    if request.param == "memory":
        world = MemoryArtifactWorld()
    else:
        world = S3ArtifactWorld(request.getfixturevalue("object_store"))
    yield world
    world.store.close()


@pytest.fixture
def store(world: ArtifactWorld) -> PartialReads:
    return world.store


class Once(io.RawIOBase):
    """A stream as a socket gives it: no seeking, short reads."""

    def __init__(self, data: bytes, at_most: int = 70_001) -> None:
        self._left = memoryview(data)
        self._at_most = at_most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), self._at_most, len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


class OnlyRead:
    """The least that a stream can be."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._inner.read(size)


# --- values ---


@pytest.mark.parametrize(
    "data", [b"", b"x", b'{"a":1}' * 50_000, content(9 * MIB)], ids=["empty", "one", "json", "big"]
)
def test_a_value_comes_back(store: ArtifactStore, data: bytes) -> None:
    address = store.put_value(data)
    assert address == sha(data)
    assert store.get_value(address) == data


def test_the_same_value_is_one_object(world: ArtifactWorld) -> None:
    first = world.store.put_value(b"again and again" * 1000)
    assert world.store.put_value(b"again and again" * 1000) == first
    assert len(world.objects()) == 1


def test_a_value_and_a_file_of_the_same_bytes_do_not_meet(world: ArtifactWorld) -> None:
    address = world.store.put_value(b"same")
    assert world.store.put_file(io.BytesIO(b"same"), media_type=OCTETS)[0] == address
    assert world.store.get_value(address) == b"same"
    assert world.store.open_file(address).read() == b"same"
    assert len(world.objects()) == 2


def test_a_large_tool_result_keeps_every_byte(store: ArtifactStore) -> None:
    """C56: 1.3 MB and 3 MB of PNG bytes."""
    for size in (1_300_000, 3_000_000):
        png = b"\x89PNG\r\n\x1a\n" + content(size)
        assert store.get_value(store.put_value(png)) == png


def test_a_missing_value_names_itself(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissingError, match=sha(b"never stored").hex()):
        store.get_value(sha(b"never stored"))


def test_a_lost_value_is_missing(world: ArtifactWorld) -> None:
    address = world.store.put_value(b"here today")
    world.lose(address)
    with pytest.raises(ArtifactMissingError, match=address.hex()):
        world.store.get_value(address)


def test_a_damaged_value_names_itself(world: ArtifactWorld) -> None:
    address = world.store.put_value(b"word " * 1000)
    world.corrupt(address)
    with pytest.raises(ArtifactDamagedError, match=address.hex()):
        world.store.get_value(address)


# --- files ---


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["bytes", "file", "stream"])
def test_a_file_comes_back(store: ArtifactStore, size: int, kind: str, tmp_path: Path) -> None:
    data = content(size)
    (tmp_path / "f").write_bytes(data)
    with (tmp_path / "f").open("rb") as on_disk:
        sources: dict[str, BinaryIO] = {
            "bytes": io.BytesIO(data),
            "file": on_disk,
            "stream": cast("BinaryIO", Once(data)),
        }
        assert store.put_file(sources[kind], media_type=OCTETS) == (sha(data), size)
    with store.open_file(sha(data)) as stream:
        assert stream.read() == data


def test_a_consumed_stream_is_stored_whole(store: ArtifactStore) -> None:
    """C52: a stream at its end must not become an empty file."""
    stream = io.BytesIO(b"written, not rewound")
    stream.seek(0, os.SEEK_END)
    address, size = store.put_file(stream, media_type=OCTETS)
    assert size == 20
    assert store.open_file(address).read() == b"written, not rewound"
    assert not stream.closed


def test_whatever_can_be_read_is_stored(store: ArtifactStore) -> None:
    address, _ = store.put_file(cast("BinaryIO", OnlyRead(b"no seek at all")), media_type=OCTETS)
    assert store.open_file(address).read() == b"no seek at all"


def test_text_is_refused_with_the_way_out(world: ArtifactWorld) -> None:
    with pytest.raises(PayloadEncodeError, match="binary mode"):
        world.store.put_file(cast("BinaryIO", io.StringIO("text")), media_type=OCTETS)
    assert world.objects() == set()


@pytest.mark.parametrize("bad", ["", "html", "text/html\r\nX-Evil: 1", "text/héml", "text/", "a/b; ü=1"])
def test_a_media_type_that_is_none_is_refused(world: ArtifactWorld, bad: str) -> None:
    with pytest.raises(PayloadEncodeError, match="media_type"):
        world.store.put_file(io.BytesIO(b"x"), media_type=bad)
    assert world.objects() == set()


class Rewritten(io.BytesIO):
    """A file that somebody writes to between hashing and storing."""

    rewinds = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self.rewinds += 1
        if self.rewinds == 2:
            self.getbuffer()[5] ^= 1
        return super().seek(offset, whence)


@pytest.mark.parametrize("size", [100, 9 * MIB])
def test_content_that_changes_meanwhile_is_refused(world: ArtifactWorld, size: int) -> None:
    with pytest.raises(ArtifactError, match="changed while it was stored"):
        world.store.put_file(Rewritten(content(size)), media_type=OCTETS)
    assert world.objects() == set()


def test_a_file_is_read_in_pieces(store: ArtifactStore) -> None:
    data = content(3 * MIB + 17)
    address, _ = store.put_file(io.BytesIO(data), media_type=OCTETS)
    with store.open_file(address) as stream:
        got = b"".join(iter(lambda: stream.read(100_003), b""))
    assert got == data


@pytest.mark.parametrize("size", [1, 300_000, 9 * MIB])
def test_a_damaged_file_never_gives_its_last_bytes(world: ArtifactWorld, size: int) -> None:
    address, _ = world.store.put_file(io.BytesIO(content(size)), media_type=OCTETS)
    world.corrupt(address)
    got = 0

    def read_to_size() -> None:
        """Read as one who knows the size and never asks for the end of the file."""
        nonlocal got
        while got < size:
            got += len(stream.read(min(4096, size - got)))

    with world.store.open_file(address) as stream:
        with pytest.raises(ArtifactDamagedError, match=address.hex()):
            read_to_size()
        assert got < size
        with pytest.raises(ArtifactDamagedError, match=address.hex()):
            stream.read()


def test_a_damaged_empty_file(world: ArtifactWorld) -> None:
    address, _ = world.store.put_file(io.BytesIO(b""), media_type=OCTETS)
    world.corrupt(address)
    with pytest.raises(ArtifactDamagedError):
        world.store.open_file(address).read()


def test_a_missing_file_names_itself(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissingError, match=sha(b"never").hex()):
        store.open_file(sha(b"never"))


def test_a_file_given_back_early_can_be_read_again(store: ArtifactStore) -> None:
    address, _ = store.put_file(io.BytesIO(content(2 * MIB)), media_type=OCTETS)
    for _ in range(20):
        with store.open_file(address) as stream:
            assert len(stream.read(10)) == 10
    with store.open_file(address) as stream:
        assert sha(stream.read()) == address
        assert stream.read() == b""


def test_one_store_serves_many_threads(store: ArtifactStore) -> None:
    def work(number: int) -> bool:
        data = json.dumps([number] * 5000).encode()
        address, _ = store.put_file(io.BytesIO(data), media_type=OCTETS)
        return store.get_value(store.put_value(data)) == data and store.open_file(address).read() == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(40)))


def test_two_writers_of_one_artifact_make_one_object(world: ArtifactWorld) -> None:
    """C51: both succeed and both have the same object, whatever the server says to conditions."""
    data = content(9 * MIB)
    ready = threading.Barrier(2)

    def write(_: int) -> tuple[bytes, int]:
        ready.wait()
        return world.store.put_file(io.BytesIO(data), media_type=OCTETS)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, range(2))) == [(sha(data), len(data))] * 2
    assert len(world.objects()) == 1
    assert world.store.open_file(sha(data)).read() == data


# --- links ---


def fetched(url: str) -> tuple[bytes, str]:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read(), response.headers.get_content_type()


@pytest.mark.parametrize("name", [None, "report.html", "../../x", 'ü €\n"quoted"; a=b.txt', "\ud800"])
def test_a_link_works_without_a_log_in(store: ArtifactStore, name: str | None) -> None:
    address, _ = store.put_file(io.BytesIO(b"<p>hello"), media_type="text/html; charset=utf-8")
    url = store.url(address, expires=60, name=name, media_type="text/html; charset=utf-8")
    assert fetched(url) == (b"<p>hello", "text/html")


@pytest.mark.parametrize("expires", [0, 0.5, -1, 7 * 24 * 3600 + 1, float("nan"), float("inf")])
def test_a_link_that_can_not_be_is_refused(store: ArtifactStore, expires: float) -> None:
    address, _ = store.put_file(io.BytesIO(b"x"), media_type=OCTETS)
    with pytest.raises(FlowOptionError, match="7 days"):
        store.url(address, expires=expires)


def test_an_address_holds_the_hash(store: ArtifactStore) -> None:
    address, _ = store.put_file(io.BytesIO(b"x"), media_type=OCTETS)
    assert address.hex() in store.uri(address)
    assert base64.b64encode(address).decode() not in store.uri(address)


@pytest.mark.parametrize("size", [1, 4096, 3 * MIB + 7])
def test_a_value_is_read_piece_by_piece(store: PartialReads, size: int) -> None:
    data = content(size)
    with store.open_value(store.put_value(data)) as stream:
        pieces = list(iter(lambda: stream.read(70_001), b""))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 70_001


def test_a_value_that_is_not_there_or_damaged_is_not_read_to_its_end(world: ArtifactWorld) -> None:
    with pytest.raises(ArtifactMissingError):
        world.store.open_value(sha(b"nothing"))
    data = content(300_000)
    sha256 = world.store.put_value(data)
    world.corrupt(sha256)
    given: list[int] = []

    def read() -> None:
        with world.store.open_value(sha256) as stream:
            while piece := stream.read(4096):
                given.append(len(piece))

    with pytest.raises(ArtifactDamagedError):
        read()
    assert sum(given) < len(data)


def test_parts_of_a_file_are_what_stands_there(store: PartialReads) -> None:
    data = content(MIB + 3)
    sha256, total = store.put_file(io.BytesIO(data), media_type=OCTETS)
    for first, size in ((0, 1), (0, total), (1, 70_000), (total - 1, 1), (MIB - 1, 4)):
        with store.open_part(sha256, first, size, total=total) as stream:
            assert stream.read() == data[first : first + size], (first, size)


def test_a_part_of_another_file_than_its_reference_says_is_damage(store: PartialReads) -> None:
    sha256, total = store.put_file(io.BytesIO(b"0123456789"), media_type=OCTETS)
    for wrong in (total - 1, total + 1):
        with pytest.raises(ArtifactDamagedError, match="its reference says"):
            store.open_part(sha256, 2, 3, total=wrong)
    with pytest.raises(ArtifactMissingError):
        store.open_part(sha(b"nothing"), 0, 1, total=7)
