"""A batch in memory: prompts, keys, what can't be asked about, and results in files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.item_shard import ItemShard, read_shard
from airflow_aiflow.exceptions import (
    AttemptSuperseded,
    FlowOptionError,
    ItemFileError,
    ItemInputError,
    ItemsFailedError,
    ModelRequestError,
)
from airflow_aiflow.runtime import result_files
from airflow_aiflow.runtime.batches import Batch, key_reader, run_batch
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.item_spool import Ask, ItemSpool
from airflow_aiflow.runtime.map_files import items_of
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.prompt_template import PromptTemplate
from airflow_aiflow.runtime.stored_folder import StoredFolder
from airflow_aiflow.storage.local_folder import LocalFolder
from airflow_aiflow.testing import DurableTask, ScriptedModels

PROMPT = "Summarise.\n\nSubject: {{ item.subject }}\n\n{{ item.body }}"

Run = Callable[..., dict[str, Any]]


def tickets(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "subject": f"Ticket {n}", "body": f"The {n}th printer burns."} for n in range(count)]


def batch(
    flow: Flow,
    items: Any,
    folder: Path | None,
    *,
    prompt: str = PROMPT,
    item_key: Any = "id",
    params: Mapping[str, Any] | None = None,
    on_item_error: str | float = "fail",
    form: Any = "jsonl",
    shard: Any = None,
    **options: Any,
) -> dict[str, Any]:
    rules = MapRules(4, on_item_error)
    made = Batch(
        name="batch",
        read=items if callable(items) else lambda: items_of(items),
        template=PromptTemplate(prompt),
        params=params or {},
        key_of=None if item_key is None else key_reader(item_key),
        options=options,
        rules=rules,
        folder=StoredFolder(flow._session, "batch") if folder is None else LocalFolder(folder),
        form=form,
        shard=read_shard(shard),
    )
    return run_batch(flow._session, flow._models, made)


def run(task: DurableTask, items: Any, folder: Path | None, **options: Any) -> dict[str, Any]:
    return task.run(lambda flow: batch(flow, items, folder, **options))


def asked(task: DurableTask) -> list[str]:
    assert isinstance(task.models, ScriptedModels)
    return [request.prompt for request in task.models.requests]


def manifest_of(folder: Path, name: str = "manifest.json") -> dict[str, Any]:
    return dict(json.loads((folder / name).read_text()))


def rows_of(folder: Path, manifest: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Read what the manifest names, and nothing else, and check it as a careful reader does."""
    manifest, rows = manifest or manifest_of(folder), []
    for shard in manifest["shards"]:
        content = (folder / shard["name"]).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (shard["sha256"], shard["size"])
        lines = [json.loads(line) for line in content.splitlines()]
        assert len(lines) == shard["items"]
        rows += lines
    assert len(rows) == manifest["items"]
    assert [row["item"] for row in rows] == list(range(len(rows)))
    return rows


def test_each_item_is_asked_about_and_its_answer_stands_in_its_place(tmp_path: Path) -> None:
    task = DurableTask()
    given = run(task, tickets(30), tmp_path, params={"x": 1})
    assert given == {
        "manifest": (tmp_path / "manifest.json").as_uri(),
        "items": 30,
        "succeeded": 30,
        "failed": 0,
        "repeated": 0,
        "shards": 1,
    }
    assert sorted(asked(task)) == sorted(
        f"Summarise.\n\nSubject: Ticket {n}\n\nThe {n}th printer burns." for n in range(30)
    )
    rows = rows_of(tmp_path)
    assert [row["key"] for row in rows] == [str(n) for n in range(30)]
    assert all(row["error"] is None and row["result"].startswith("answer to: Summarise.") for row in rows)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert run(task, tickets(30), tmp_path) == given, "a retry"
    assert len(asked(task)) == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "it writes the same files"


def test_params_and_items_that_are_no_mappings(tmp_path: Path) -> None:
    task = DurableTask()
    run(task, ["a", "b"], tmp_path, prompt="{{ params.word }} {{ item }}", item_key=None, params={"word": "Say"})
    assert sorted(asked(task)) == ["Say a", "Say b"]
    assert [row["key"] for row in rows_of(tmp_path)] == [None, None]


def test_a_missing_field_names_its_item_before_the_first_call(tmp_path: Path) -> None:
    task = DurableTask()
    items = [{"id": 4711 + n, "subject": "x", "body": "y"} for n in range(1_500)]
    with pytest.raises(ItemInputError, match=r"^item 4711 has no field 'bodi'; its fields: id, subject, body\n"):
        run(task, items, tmp_path, prompt="{{ item.bodi }}")
    del items[1_200]["body"]
    with pytest.raises(ItemInputError, match=r"^item 5911 has no field 'body'") as caught:
        run(task, iter(items), tmp_path)
    assert any("Nothing was sent" in note for note in caught.value.__notes__)
    assert asked(task) == []
    assert not list(tmp_path.iterdir())


def test_nested_fields_and_defaults(tmp_path: Path) -> None:
    task = DurableTask()
    item = {"id": 1, "customer": {"name": "Ann"}, "items": "three", "values": 2}
    prompt = (
        "{{ item.customer.name }} {{ item['items'] }} {{ item.items }} {{ item.values }} {{ item.no | default('-') }}"
    )
    run(task, [item], tmp_path, prompt=prompt)
    assert asked(task) == ["Ann three three 2 -"]
    with pytest.raises(ItemInputError, match="item 1 has no field 'nme'; its fields: name"):
        run(task, [item], tmp_path, prompt="{{ item.customer.nme }}")


@pytest.mark.parametrize(
    ("prompt", "wrong"),
    [
        ("{{ itm.body }}", "names 'itm', which is not there"),
        ("{{ ds }}", "names 'ds', which is not there"),
        ("{{ item.body", "no template that Jinja can read"),
        ("{{ item.body | shout }}", "No filter named 'shout'"),
        ("  ", "must be a text"),
        (None, "must be a text"),
    ],
)
def test_a_wrong_prompt_is_refused_before_any_item_is_read(prompt: Any, wrong: str) -> None:
    with pytest.raises(FlowOptionError, match=wrong):
        PromptTemplate(prompt)


@pytest.mark.parametrize(
    "prompt",
    ["{{ item.__class__.__mro__ }}", "{{ ''.__class__ }}", "{{ params.clear() }}", "{{ item.pop('id') }}"],
)
def test_a_prompt_runs_in_a_sandbox(prompt: str) -> None:
    with pytest.raises(ItemInputError, match=r"^item 1"):
        PromptTemplate(prompt).render({"id": 1}, {"a": 1}, "1")


@pytest.mark.parametrize(
    ("item", "wrong"),
    [
        ({"body": "x"}, "item 0 of the list has no field 'id', which item_key names; its fields: body"),
        ({"id": None}, "item 0 of the list has no key: its field 'id' is None"),
        ({"id": " "}, "item 0 of the list has no key"),
        ({"id": [1]}, "item 0 of the list has no key"),
        ("text", "item 0 of the list has no field 'id', which item_key names; its fields: it is a str"),
    ],
)
def test_an_item_without_a_key(item: Any, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ItemInputError, match=wrong):
        run(DurableTask(), [item], tmp_path, prompt="{{ item }}")


def test_zero_items_are_a_result_too(tmp_path: Path) -> None:
    task = DurableTask()
    given = run(task, [], tmp_path)
    assert (given["items"], given["shards"]) == (0, 0)
    assert rows_of(tmp_path) == []
    assert any("0 items to ask about" in line for line in task.host.warnings)


def test_the_very_same_item_twice_is_done_once_and_a_key_with_two_contents_is_refused(tmp_path: Path) -> None:
    task = DurableTask()
    items = [*tickets(3), tickets(2)[1]]
    given = run(task, items, tmp_path)
    assert (given["items"], given["repeated"], len(asked(task))) == (3, 1, 3)
    assert manifest_of(tmp_path)["repeated"] == 1
    other = [*tickets(3), {**tickets(3)[1], "body": "It is ice."}]
    with pytest.raises(ItemInputError, match="item 1 came before, as item 1 of the list, with another prompt"):
        run(DurableTask(), other, tmp_path)
    tolerant = run(DurableTask(), other, tmp_path, on_item_error=0.5)
    assert (tolerant["items"], tolerant["failed"]) == (4, 1)
    assert rows_of(tmp_path)[3]["error"]["type"] == "ItemInputError"


def test_equal_items_without_a_key_are_each_asked_about(tmp_path: Path) -> None:
    task = DurableTask()
    given = run(task, ["a", "a"], tmp_path, prompt="{{ item }}", item_key=None)
    assert (given["items"], len(asked(task))) == (2, 2)


def test_more_items_than_may_that_cant_be_asked_about_end_the_batch_before_anything_is_paid(tmp_path: Path) -> None:
    items = tickets(100)
    for n in (3, 50, 99):
        del items[n]["body"]
    task = DurableTask()
    with pytest.raises(ItemsFailedError, match=r"3 of 100 items can't be asked about, on_item_error=0\.02.*item 3 has"):
        run(task, items, tmp_path, on_item_error=0.02)
    assert asked(task) == []
    given = run(task, items, tmp_path, on_item_error=0.03)
    assert (given["failed"], len(asked(task))) == (3, 97)
    assert rows_of(tmp_path)[50] == {
        "item": 50,
        "key": "50",
        "result": None,
        "error": {"type": "ItemInputError", "message": "item 50 has no field 'body'; its fields: id, subject"},
    }
    lost = [(item.number, item.key) for *_, item in task.ledger.items.failed_of_run("dag", "run")]
    assert lost == [(3, "3"), (50, "50"), (99, "99")]


def test_a_field_that_no_item_has_ends_the_batch_whatever_may_fail(tmp_path: Path) -> None:
    task = DurableTask()
    with pytest.raises(ItemsFailedError, match="10 of 10 items can't be asked about"):
        run(task, tickets(10), tmp_path, prompt="{{ item.bodi }}", on_item_error="skip")
    assert asked(task) == []


def test_a_poisoned_item_is_left_out_and_tried_again_alone(tmp_path: Path) -> None:
    ill = True

    def answer(request: Any) -> str:
        if "The 7th" in request.prompt and ill:
            raise ModelRequestError("the content filter said no")
        return "fine"

    task = DurableTask(models=ScriptedModels(answer))
    given = run(task, tickets(20), tmp_path, on_item_error=0.1)
    assert (given["succeeded"], given["failed"]) == (19, 1)
    assert rows_of(tmp_path)[7]["error"] == {"type": "ModelRequestError", "message": "the content filter said no"}
    before = len(asked(task))

    task.same_again()
    assert run(task, tickets(20), tmp_path, on_item_error=0.1)["failed"] == 1
    assert len(asked(task)) == before, "a dead item is left alone"

    ill = False
    [(_, pk, generation, _)] = task.ledger.items.failed_of_run("dag", "run")
    task.ledger.items.retry_items(pk, generation)
    task.retried()
    assert run(task, tickets(20), tmp_path, on_item_error=0.1)["failed"] == 0
    assert len(asked(task)) == before + 1
    assert rows_of(tmp_path)[7]["result"] == "fine"


class Verdict(BaseModel):
    """An answer."""

    good: bool
    words: list[str]


def test_structured_answers(tmp_path: Path) -> None:
    task = DurableTask(models=ScriptedModels(lambda request: Verdict(good=True, words=["ä", "\u2028"])))
    run(task, tickets(2), tmp_path / "json", output_type=Verdict)
    assert rows_of(tmp_path / "json")[1]["result"] == {"good": True, "words": ["ä", "\u2028"]}
    run(task, tickets(2), tmp_path / "columns", output_type=Verdict, form="parquet")
    [shard] = manifest_of(tmp_path / "columns")["shards"]
    table = pq.read_table(tmp_path / "columns" / shard["name"])
    assert table.column_names == ["item", "key", "result", "error"]
    assert json.loads(table["result"][1].as_py()) == {"good": True, "words": ["ä", "\u2028"]}
    assert table["error"].to_pylist() == [None, None]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_many_files_in_order_and_the_same_ones_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(result_files, "FILE_BYTES", 900)
    task = DurableTask()
    given = run(task, tickets(100), tmp_path, form=form)
    assert given["shards"] > 3
    manifest = manifest_of(tmp_path)
    run(task, tickets(100), tmp_path, form=form)
    assert manifest_of(tmp_path) == manifest
    assert len(list(tmp_path.iterdir())) == given["shards"] + 1


def test_a_shrunken_batch_names_no_older_file_and_removes_what_two_manifests_dont_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "FILE_BYTES", 900)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "part-00000-mine.jsonl").write_text("mine")
    first = run(DurableTask(run_id="1"), tickets(100), tmp_path)
    in_hand = manifest_of(tmp_path)
    old = {shard["name"] for shard in in_hand["shards"]}
    run(DurableTask(run_id="2"), tickets(10)[::-1], tmp_path)
    assert len(rows_of(tmp_path)) == 10
    assert len(rows_of(tmp_path, in_hand)) == 100, "who had begun to read goes on"
    run(DurableTask(run_id="3"), tickets(9), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(rows_of(tmp_path)) == 9
    assert len(names & old) < first["shards"] - 1
    assert {"notes.txt", "part-00000-mine.jsonl"} <= names


def test_an_attempt_that_another_took_over_writes_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "FILE_BYTES", 1)
    task = DurableTask()

    def body(flow: Flow) -> Any:
        class Slow(LocalFolder):
            def put(self, name: str, stream: Any, **options: Any) -> None:
                super().put(name, stream, **options)
                flow._session.gate.supersede("a later attempt is at work")

        folder = Slow(tmp_path)
        rules, template = MapRules(4, "fail"), PromptTemplate(PROMPT)
        # One file for each row, so that the last of them is stored before the manifest's turn.
        made = Batch("batch", lambda: tickets(3), template, {}, key_reader("id"), {}, rules, folder, "jsonl", None)
        return run_batch(flow._session, flow._models, made)

    with pytest.raises(AttemptSuperseded):
        task.run(body)
    assert not (tmp_path / "manifest.json").exists()


def test_results_are_items_again(tmp_path: Path) -> None:
    task = DurableTask()

    def body(flow: Flow) -> Any:
        given = batch(flow, tickets(5), None)
        manifest = given["manifest"]
        assert isinstance(manifest, ArtifactRef)
        return flow.map("length", lambda row: len(row["result"]), manifest)

    lengths = task.run(body)
    assert len(lengths) == 5
    assert min(lengths) > 10


def test_the_results_of_a_part_are_items_again() -> None:
    task = DurableTask()
    given = run(task, tickets(20), None, shard=(0, 2))
    ids = task.run(lambda flow: flow.map("key", lambda row: row["key"], given["manifest"]))
    assert len(ids) == given["items"] > 0


def test_parts_by_key_are_all_items_once_and_keep_theirs_when_the_list_grows(tmp_path: Path) -> None:
    ledger_task = DurableTask()
    models = ScriptedModels()

    def parts(items: list[dict[str, Any]], run_id: str) -> list[list[str]]:
        found = []
        for index in range(3):
            task = DurableTask(run_id=run_id, map_index=index, ledger=ledger_task.ledger, models=models)
            folder = tmp_path / run_id
            run(task, items, folder, shard=[index, 3], reuse=timedelta(days=1))
            manifest = manifest_of(folder, f"manifest-{index}-of-3.json")
            assert manifest["shard"] == [index, 3]
            found.append(
                [
                    json.loads(line)["key"]
                    for shard in manifest["shards"]
                    for line in (folder / shard["name"]).read_bytes().splitlines()
                ]
            )
        return found

    first = parts(tickets(60), "1")
    assert sorted(map(int, [key for part in first for key in part])) == list(range(60))
    assert all(len(part) > 10 for part in first)
    before = len(models.requests)
    second = parts([{"id": "new", "subject": "x", "body": "y"}, *reversed(tickets(60))], "2")
    assert len(models.requests) == before + 1, "what another run was given is found whatever its place"
    for old, new in zip(first, second, strict=True):
        assert set(old) == set(new) - {"new"}


def test_parts_without_a_key_go_by_the_prompt() -> None:
    assert sum(ItemShard(index, 4).has("text") for index in range(4)) == 1
    for wrong in ((4, 4), (-1, 4), (0,), "0/4", (0, 2.0), (True, 2)):
        with pytest.raises(FlowOptionError, match="shard must be"):
            read_shard(wrong)


def test_a_cut_file_ends_the_batch_with_its_line_or_is_a_failed_item(tmp_path: Path) -> None:
    content = b'{"id": 1, "body": "a"}\n{"id": 2, "bo'
    task = DurableTask()

    def body(flow: Flow, **options: Any) -> dict[str, Any]:
        return batch(flow, flow.save(content, name="t.jsonl"), tmp_path, prompt="{{ item.body }}", **options)

    with pytest.raises(ItemFileError, match=r"t\.jsonl, line 2: JSONDecodeError"):
        task.run(body)
    assert asked(task) == []
    assert task.run(lambda flow: body(flow, on_item_error=0.5))["failed"] == 1
    assert "line 2" in rows_of(tmp_path)[1]["error"]["message"]


def test_the_items_between_leave_nothing_behind_however_the_process_ends(tmp_path: Path) -> None:
    with ItemSpool(str(tmp_path)) as spool:
        for number in range(30_000):
            assert spool.add(str(number), f"prompt {number} " + "x" * 500) is None
        assert list(tmp_path.iterdir()) == [], "on disk, and without a name"
        assert [ask.key for ask in spool.asks() if isinstance(ask, Ask)] == [str(n) for n in range(30_000)]
        assert spool.add("7", "another") is not None


@pytest.mark.parametrize("key", ["half \ud800", "zero \x00"])
def test_a_key_that_cant_be_stored_is_its_items_trouble_before_the_first_call(key: str, tmp_path: Path) -> None:
    task, items = DurableTask(), [*tickets(2), {"id": key, "subject": "", "body": ""}]
    with pytest.raises(ItemInputError, match="item 2 of the list has no key that can be stored"):
        run(task, items, tmp_path)
    assert asked(task) == []
    assert run(task, items, tmp_path, on_item_error="skip")["failed"] == 1


def test_an_error_that_quotes_half_a_surrogate_pair_fails_its_item_alone(tmp_path: Path) -> None:
    items = [*tickets(2), {"id": 3, "subject": "", "\ud800": ""}]
    assert run(DurableTask(), items, tmp_path, on_item_error="skip")["failed"] == 1


def test_a_large_item(tmp_path: Path) -> None:
    task = DurableTask(models=ScriptedModels(lambda request: request.prompt[::-1]))
    run(task, [{"id": 1, "body": "x" * 5_000_000 + "y"}], tmp_path, prompt="{{ item.body }}")
    assert rows_of(tmp_path)[0]["result"] == "y" + "x" * 5_000_000


def test_odd_characters(tmp_path: Path) -> None:
    task = DurableTask(models=ScriptedModels(lambda request: request.prompt))
    run(task, [{"id": "a b/ä", "body": "\x00 \U0001f600"}], tmp_path, prompt="{{ item.body }}")
    [row] = rows_of(tmp_path)
    assert (row["key"], row["result"]) == ("a b/ä", "\x00 \U0001f600")


def test_an_answer_with_a_secret_is_refused(tmp_path: Path) -> None:
    task = DurableTask(models=ScriptedModels(lambda request: "the key is sk-secret"), secrets=("sk-secret",))
    with pytest.raises(FlowOptionError, match="the result of item 0 holds a secret"):
        run(task, tickets(1), tmp_path)
    assert not (tmp_path / "manifest.json").exists()


def test_an_answer_with_a_secret_is_a_failed_item_where_items_may_fail(tmp_path: Path) -> None:
    def answer(request: Any) -> str:
        return "sk-secret" if "Ticket 1" in request.prompt else "fine"

    task = DurableTask(models=ScriptedModels(answer), secrets=("sk-secret",))
    assert run(task, tickets(3), tmp_path, on_item_error="skip")["failed"] == 1
    rows = rows_of(tmp_path)
    assert [row["result"] for row in rows] == ["fine", None, "fine"]
    assert rows[1]["error"]["type"] == "FlowOptionError"


def test_a_source_that_breaks_off_ends_the_batch_with_its_own_error_and_is_closed(tmp_path: Path) -> None:
    closed = []

    def cut() -> Iterator[Any]:
        try:
            yield from tickets(3)
            raise ConnectionError("the database is away")
        finally:
            closed.append(True)

    task = DurableTask()
    with pytest.raises(ConnectionError):
        run(task, cut, tmp_path, on_item_error="skip")
    assert asked(task) == []
    assert closed == [True]
