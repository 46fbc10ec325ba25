"""Items out of files, and results into files."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.exceptions import AiflowConfigError, FlowOptionError, ItemFileError
from airflow_aiflow.runtime import map_files, map_shards
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.map_files import FileItems, ItemFile
from airflow_aiflow.runtime.parquet import open_rows
from airflow_aiflow.testing import DurableTask, flow


def same(item: Any) -> Any:
    return item


LINES = [{"id": 1, "text": "ä\u2028b"}, ["two"], 3, None]


def json_lines(*extra: bytes) -> bytes:
    return b"\n".join([*(json.dumps(line, ensure_ascii=False).encode() for line in LINES), *extra])


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n  \n"])
def test_json_lines_come_one_by_one(monkeypatch: pytest.MonkeyPatch, chunk: int, end: bytes) -> None:
    monkeypatch.setattr(map_files, "CHUNK", chunk)
    with flow() as f:
        assert f.map("same", same, f.save(b"\xef\xbb\xbf" + json_lines() + end, name="items.jsonl")) == LINES


def test_a_line_that_was_cut_is_named_and_the_rest_is_done_where_the_author_says_so() -> None:
    content = b'{"id": 1}\n{"id": 2\n{"id": 3}\n{"id": 4, "te'
    task = DurableTask()

    def body(f: Flow, **options: Any) -> Any:
        return f.map("same", same, f.save(content, name="items.jsonl"), **options)

    with pytest.raises(ItemFileError, match=r"items\.jsonl, line 2: JSONDecodeError"):
        task.run(body)
    assert task.run(lambda f: body(f, on_item_error="skip")) == [{"id": 1}, None, {"id": 3}, None]
    lost = [item.number for *_, item in task.ledger.items.failed_of_run("dag", "run")]
    assert lost == [1, 3]
    assert any("line 4" in line for line in task.host.warnings)


def test_csv_rows_are_dicts_by_the_header() -> None:
    content = 'id,text\n1,"a, b"\n2,"two\nlines"\n\n3,ä\n'
    with flow() as f:
        rows = f.map("same", same, f.save(content.encode(), name="items.csv"))
    assert rows == [{"id": "1", "text": "a, b"}, {"id": "2", "text": "two\nlines"}, {"id": "3", "text": "ä"}]


def test_csv_rows_of_another_width_are_named() -> None:
    with flow() as f:
        given = f.map("same", same, f.save(b"a,b\n1,2\n1,2,3\n4,5\n6\n", name="items.csv"), on_item_error="skip")
        assert given == [{"a": "1", "b": "2"}, None, {"a": "4", "b": "5"}, None]
        with pytest.raises(ItemFileError, match="line 3: ValueError: it has 3 fields, the header has 2"):
            f.map("same", same, f.save(b"a,b\n1,2\n1,2,3\n", name="items.csv"))


def parquet(table: dict[str, list[Any]], **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(table), stream, **options)
    return stream.getvalue()


def test_csv_rows_after_one_that_cant_be_decoded_are_still_items() -> None:
    rows = list(csv_items(b"a,b\n1,2\n3,\xff\n5,6\n7,8\n"))
    assert [type(row).__name__ for row in rows] == ["dict", "Unreadable", "dict", "dict"]
    assert "line 3: UnicodeDecodeError" in str(rows[1].error)
    assert rows[3] == {"a": "7", "b": "8"}


def test_a_long_field_of_csv_is_one_item_and_its_lines_are_none() -> None:
    long = "a line\n" * 40_000
    assert list(csv_items(f'text\n"{long}"\nlast\n'.encode())) == [{"text": long}, {"text": "last"}]


def test_a_quote_that_nobody_closed_ends_the_reading_and_swallows_no_rows() -> None:
    rows = csv_items(b'text\nfirst\n"open\nsecond\nthird\n')
    assert next(rows) == {"text": "first"}
    with pytest.raises(ItemFileError, match="from line 3 on"):
        next(rows)


def csv_items(content: bytes) -> Iterator[Any]:
    return iter(FileItems(ItemFile("rows.csv", "csv", lambda: io.BytesIO(content), len(content))))


def test_parquet_rows_are_dicts_and_their_number_is_known() -> None:
    task = DurableTask()
    content = parquet({"id": list(range(2_500)), "text": ["ä"] * 2_500}, row_group_size=700)
    given = task.run(lambda f: f.map("id", lambda row: row["id"], f.save(content, name="items.parquet")))
    assert given == list(range(2_500))
    assert any("2,500 of 2,500" in line or "all 2,500 items" in line for line in task.host.lines)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"PAR1", "can't be read as Parquet"),
        (parquet({"id": [1, 2, 3]})[:-9], "can't be read as Parquet"),
        (b"x" * 1000, "can't be read as Parquet"),
    ],
)
def test_a_broken_parquet_file_is_named(content: bytes, wrong: str) -> None:
    with flow() as f, pytest.raises(ItemFileError, match=f"items.parquet {wrong}"):
        f.map("same", same, f.save(content, name="items.parquet"), on_item_error="skip")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ItemFileError, match=r"t\.parquet has no column 'body'; its columns: id, text"):
        open_rows(io.BytesIO(parquet({"id": [1], "text": ["x"]})), "t.parquet", ["id", "body"])


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with flow() as f, pytest.raises(AiflowConfigError, match=r"pip install 'airflow-aiflow\[batch\]'"):
        f.map("same", same, f.save(b"x", name="items.parquet"))


def test_a_manifest_of_results_is_items_again() -> None:
    def body(f: Flow) -> Any:
        manifest = f.map("double", double, range(2_000), results="shards")
        return f.map("double again", double, manifest), f.map("broken", same, f.save(b"{}", name="x-manifest.json"))

    task = DurableTask()
    with pytest.raises(ItemFileError, match=r"x-manifest\.json is no manifest of results: KeyError"):
        task.run(body)
    again = task.run(lambda f: f.map("double again", double, f.map("double", double, range(2_000), results="shards")))
    assert again == [n * 4 for n in range(2_000)]


def double(item: int) -> int:
    return item * 2


@pytest.mark.parametrize("name", ["items.jsonl", "items.csv"])
def test_the_progress_of_a_file_of_unknown_length_goes_by_its_bytes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(map_files, "CHUNK", 512)
    lines = b"".join(b'{"id": %d}\n' % n if name.endswith("jsonl") else b"%d,x\n" % n for n in range(3_000))
    task = DurableTask()
    content = lines if name.endswith("jsonl") else b"id,text\n" + lines
    assert len(task.run(lambda f: f.map("same", same, f.save(content, name=name)))) == 3_000
    shares = [
        int(found[1])
        for line in task.host.lines
        if (found := re.search(r"aiflow: same: [\d,]+ \(about (\d+) % of the file\), .* items/s", line))
    ]
    assert 4 <= len(shares) <= 22, shares
    assert shares == sorted(shares)


def test_parts_are_all_items_once_by_what_they_are() -> None:
    items = [{"id": n, "text": "x" * n} for n in range(50)]

    def parts(items: list[Any], **options: Any) -> list[list[int]]:
        found = []
        for index in range(3):  # each in a task of its own, as they are mapped
            with flow() as f:
                found.append([row["id"] for row in f.map("part", same, items, shard=(index, 3), **options)])
        return found

    first = parts(items)
    assert sorted(number for part in first for number in part) == list(range(50))
    assert all(part == sorted(part) for part in first), "in the order of the list"
    keyed = parts(items, item_key=lambda row: str(row["id"]))
    grown = parts([{"id": 99, "text": "new"}, *items], item_key=lambda row: str(row["id"]))
    assert [[number for number in part if number != 99] for part in grown] == keyed
    with flow() as f:
        read = f.map("part", same, iter(items), shard=(1, 3), item_key=lambda row: str(row["id"]))
        assert [row["id"] for row in read] == keyed[1]
        assert len(f.llm_map("ask", ["a", "b", "c", "a"], shard=(0, 1))) == 4
        with pytest.raises(FlowOptionError, match="shard must be"):
            f.map("same", same, items, shard=(3, 3))


@pytest.mark.parametrize("content", [b"", b"a,b\n"])
def test_no_items(content: bytes) -> None:
    with flow() as f:
        if not content:
            assert f.map("same", same, []) == []
            assert f.map("same", same, iter(())) == []
            return
        assert f.map("same", same, f.save(content, name="items.csv")) == []


def test_another_kind_of_file_is_refused_before_anything_runs() -> None:
    with flow() as f, pytest.raises(FlowOptionError, match="items come from JSON lines"):
        f.map("same", same, f.save(b"x", name="items.xlsx"))


def test_prompts_come_out_of_a_file_too() -> None:
    with flow() as f:
        ref = f.save(b'"one"\n"two"\n', media_type="application/jsonl")
        assert f.llm_map("page", ref) == ["answer to: one", "answer to: two"]
        with pytest.raises(TypeError, match="prompt must be a str, got dict"):
            f.llm_map("page", f.save(b'{"a": 1}\n', name="prompts.jsonl"))


def square(item: int) -> dict[str, int]:
    if item == 7:
        raise ValueError("seven")
    return {"n": item, "square": item * item}


def test_results_are_written_in_order_with_a_manifest_and_again_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_shards.ShardWriter.__init__, "__defaults__", (200,))
    task = DurableTask()

    def body(f: Flow) -> ArtifactRef:
        ref = f.map("square", square, range(40), results="shards", on_item_error="skip", max_item_attempts=1)
        assert isinstance(ref, ArtifactRef)
        manifest = json.loads(f.load(ref))
        assert (manifest["map"], manifest["items"], manifest["failed"]) == ("square", 40, 1)
        shards = [ArtifactRef.from_plain({k: v for k, v in s.items() if k != "items"}) for s in manifest["shards"]]
        assert len(shards) > 3
        lines = [json.loads(line) for shard in shards for line in f.load(shard).splitlines()]
        assert lines == [None if n == 7 else {"n": n, "square": n * n} for n in range(40)]
        assert [line for shard in shards for line in f.map("again", same, shard)] == lines, "a shard is a file of items"
        return ref

    first = task.run(body)
    task.hears = False
    assert task.run(body).sha256 == first.sha256


def test_a_secret_does_not_go_into_a_file() -> None:
    def leak(_item: int) -> str:
        return "it is hunter2"

    with flow(secrets=("hunter2",)) as f, pytest.raises(FlowOptionError, match="holds a secret"):
        f.map("leak", leak, [1], results="shards")


def test_nothing_is_kept_where_nothing_is_wanted() -> None:
    with flow() as f:
        assert f.map("same", same, range(100), results="none") == 100
