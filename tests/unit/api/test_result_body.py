"""Results as HTTP bodies: a file's own bytes, a value as JSON, whole or by range, never held where they are large."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, BinaryIO

import pytest
from fastapi.responses import Response, StreamingResponse

from airflow_aiflow.api import result_body
from airflow_aiflow.api.ranged_body import part, ranged
from airflow_aiflow.api.result_body import ResultDesk, plain_size
from airflow_aiflow.durable.artifact import PAYLOAD_MEDIA_TYPE, TEXT_MEDIA_TYPE, ArtifactRef
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.submission_ports import StoredResult
from airflow_aiflow.exceptions import ArtifactDamagedError, ArtifactMissingError
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.xcom import StoredList, reference_in

LARGE = [{"number": number, "text": 'a "quoted" $5 and {"$no": tag} é'} for number in range(20_000)]


@pytest.fixture
def store() -> MemoryArtifactStore:
    return MemoryArtifactStore()


def file(store: MemoryArtifactStore, data: bytes, media_type: str) -> ArtifactRef:
    sha256, size = store.put_file(io.BytesIO(data), media_type=media_type)
    return ArtifactRef(sha256.hex(), size, media_type, "a", store.uri(sha256))


def never() -> Any:
    raise AssertionError("it was read as a whole")


def ask(store: MemoryArtifactStore, value: Any, **headers: str) -> tuple[Response, bytes]:
    async def asked() -> tuple[Response, bytes]:
        wanted = {name.replace("_", "-"): text for name, text in headers.items()}
        answer = await ResultDesk(lambda: store).answer(value, wanted)
        if not isinstance(answer, StreamingResponse):
            return answer, bytes(answer.body)
        return answer, b"".join([bytes(piece) async for piece in answer.body_iterator])  # type: ignore[arg-type]

    answer, body = asyncio.run(asked())
    if answer.status_code in (200, 206):
        assert answer.headers["Content-Length"] == str(len(body))
    return answer, body


def test_a_saved_text_is_the_text(store: MemoryArtifactStore) -> None:
    answer, body = ask(store, file(store, "größer".encode(), TEXT_MEDIA_TYPE))
    assert (answer.status_code, body.decode(), answer.headers["Content-Type"]) == (200, "größer", TEXT_MEDIA_TYPE)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_saved_value_is_json(store: MemoryArtifactStore) -> None:
    for value, said in (([1, "a"], [1, "a"]), ([(1, 2)], None)):
        answer, body = ask(store, file(store, encode(value).data, PAYLOAD_MEDIA_TYPE))
        assert answer.headers["Content-Type"] == "application/json"
        assert said is None or json.loads(body) == said
        assert answer.headers["ETag"] == f'"{hashlib.sha256(body).hexdigest()}"'


def test_a_large_value_goes_out_as_it_lies_in_the_store(store: MemoryArtifactStore) -> None:
    sha256 = store.put_value(encode(LARGE).data)
    answer, body = ask(store, StoredResult(sha256, never))
    assert (answer.status_code, json.loads(body)) == (200, LARGE)
    assert answer.headers["ETag"] == f'"{sha256.hex()}"'
    rest, end = ask(store, StoredResult(sha256, never), range="bytes=100000-", if_range=answer.headers["ETag"])
    assert (rest.status_code, end) == (206, body[100_000:])
    middle, some = ask(store, StoredResult(sha256, never), range="bytes=5-9")
    assert (some, middle.headers["Content-Range"]) == (body[5:10], f"bytes 5-9/{len(body)}")


def test_what_json_does_not_have_is_read(store: MemoryArtifactStore) -> None:
    when = datetime(2026, 11, 30, tzinfo=UTC)
    stored: list[tuple[Any, Any]] = [
        ([*LARGE, when], [*LARGE, when]),
        ([*LARGE, {"__classname__": "builtins.tuple", "__version__": 1, "__data__": [1]}], [*LARGE, (1,)]),
    ]
    for written, value in stored:
        read: list[int] = []

        def reads(value: Any = value, read: list[int] = read) -> Any:
            read.append(1)
            return value

        answer, body = ask(store, StoredResult(store.put_value(encode(written).data), reads))
        assert (answer.status_code, len(read)) == (200, 1)
        assert len(body) > result_body.IN_MEMORY, "so that it was handed out from disk"
        assert json.loads(body)[0] == LARGE[0]
        assert answer.headers["ETag"] == f'"{hashlib.sha256(body).hexdigest()}"'
        _, end = ask(store, StoredResult(store.put_value(encode(written).data), reads), range="bytes=-7")
        assert end == body[-7:]


def test_marks_are_found_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_body, "PIECE", 16)
    for mark in result_body.MARKS:
        for before in range(40):
            assert plain_size(io.BytesIO(b"[" + b" " * before + mark + b"1}]")) is None
    assert plain_size(io.BytesIO(b"\x01aiflow-e1 locked")) is None
    assert plain_size(io.BytesIO(b'["{\\"$a", "$b", "__classname__"]')) == 32


def test_a_file_is_given_by_range(store: MemoryArtifactStore) -> None:
    data = bytes(range(256)) * 4000
    ref = file(store, data, "application/pdf")
    whole, body = ask(store, ref)
    assert (whole.status_code, body, whole.headers["Accept-Ranges"]) == (200, data, "bytes")
    tag = whole.headers["ETag"]
    for wanted, first, last in (("0-0", 0, 0), ("5-", 5, len(data) - 1), ("-3", len(data) - 3, len(data) - 1)):
        answer, body = ask(store, ref, range=f"bytes={wanted}")
        assert (answer.status_code, body) == (206, data[first : last + 1]), wanted
        assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(data)}"
    for whole_again in (
        {"if_range": '"other"'},
        {"if_range": f"W/{tag}"},
        {"if_range": "Mon, 30 Nov 2026 17:00:00 GMT"},
    ):
        answer, body = ask(store, ref, range="bytes=5-", **whole_again)
        assert (answer.status_code, body) == (200, data), whole_again
    assert ask(store, ref, range="bytes=5-", if_range=tag)[0].status_code == 206
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        assert ask(store, ref, if_none_match=known)[0].status_code == 304
    beyond, _ = ask(store, ref, range=f"bytes={len(data)}-")
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(data)}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes=0-9", (0, 9)),
        ("bytes=9-99", (9, 9)),
        ("bytes=3-", (3, 9)),
        ("bytes=-4", (6, 9)),
        ("bytes=-400", (0, 9)),
        ("bytes=10-", None),
        ("bytes=-0", None),
        (f"bytes={'9' * 5000}-", None),
        (f"bytes=0-{'9' * 5000}", (0, 9)),
        ("bytes=5-2", (0, None)),
        ("bytes=0-1,3-4", (0, None)),
        ("lines=0-1", (0, None)),
        ("bytes=-", (0, None)),
        ("bytes=٣-", (0, None)),
    ],
)
def test_ranges_are_read_as_the_rfc_says(text: str, found: tuple[int, int | None] | None) -> None:
    assert part(text, 10) == found


def test_of_nothing_there_is_no_part() -> None:
    assert [part(text, 0) for text in ("bytes=0-", "bytes=-1", "bytes=0-0")] == [None, None, None]


def test_what_is_damaged_or_gone_is_never_given_as_a_whole(store: MemoryArtifactStore) -> None:
    ref = file(store, bytes(1_000_000), "application/pdf")
    store.corrupt(bytes.fromhex(ref.sha256))
    with pytest.raises(ArtifactDamagedError):
        ask(store, ref)
    store.lose(bytes.fromhex(ref.sha256))
    with pytest.raises(ArtifactMissingError):
        ask(store, ref)
    sha256 = store.put_value(encode(LARGE).data)
    store.corrupt(sha256)
    with pytest.raises(ArtifactDamagedError):
        ask(store, StoredResult(sha256, never))


def test_a_reference_in_xcom_is_found_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.serde import serialize

    plain: Any = serialize(StoredList([1], "ab" * 32, 7))
    assert reference_in(plain) == bytes.fromhex("ab" * 32)
    for other in (plain | {"__version__": 99}, plain | {"__data__": {}}, {"a": 1}, [plain], None, "text"):
        assert reference_in(other) is None


def test_a_client_that_goes_closes_what_was_opened(store: MemoryArtifactStore) -> None:
    ref = file(store, bytes(2_000_000), "application/pdf")
    opened: list[Any] = []
    real: Callable[[bytes], Any] = store.open_file

    def open_file(sha256: bytes) -> Any:
        opened.append(real(sha256))
        return opened[-1]

    store.open_file = open_file  # type: ignore[method-assign]

    async def goes() -> None:
        answer = await ResultDesk(lambda: store).answer(ref, {})
        assert isinstance(answer, StreamingResponse)
        pieces: Any = answer.body_iterator
        await anext(pieces)
        await pieces.aclose()

    asyncio.run(goes())
    assert opened[0].closed


def test_several_stored_values_are_read_where_large_ones_are(store: MemoryArtifactStore) -> None:
    answer, body = ask(store, StoredResult(None, lambda: [[1], [2]]), range="bytes=1-3")
    assert (answer.status_code, body) == (206, b"[1]")


def test_who_waits_for_the_end_of_a_large_value_holds_up_no_other_result(
    store: MemoryArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256, many = store.put_value(encode(LARGE).data), 20
    go_on, real = threading.Event(), store.open_value

    async def asked() -> None:
        desk, together = ResultDesk(lambda: store), asyncio.Barrier(many)
        loop, at_work = asyncio.get_running_loop(), asyncio.Event()

        def slow(sha256: bytes) -> BinaryIO:
            loop.call_soon_threadsafe(at_work.set)
            assert go_on.wait(20)
            return real(sha256)

        await desk.answer(StoredResult(sha256, never), {})

        async def ranged_together(content: Any, headers: Any, more: Any) -> Response:
            if headers:
                await together.wait()
            return await ranged(content, headers, more)

        store.open_value = slow  # type: ignore[method-assign]
        monkeypatch.setattr(result_body, "ranged", ranged_together)
        wanted = {"range": "bytes=-9"}
        ends = [asyncio.create_task(desk.answer(StoredResult(sha256, never), wanted)) for _ in range(many)]
        try:
            await at_work.wait()
            assert (await asyncio.wait_for(desk.answer([1], {}), 10)).status_code == 200
        finally:
            go_on.set()
            answers = await asyncio.gather(*ends)
        assert {each.status_code for each in answers} == {206}

    asyncio.run(asked())
