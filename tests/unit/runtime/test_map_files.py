"""Items out of files, and results into files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.exceptions import FlowOptionError, ItemFileError
from airflow_aiflow.runtime import map_files, map_shards
from airflow_aiflow.runtime.flow import Flow
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
