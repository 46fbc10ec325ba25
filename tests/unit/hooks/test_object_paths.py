"""A file, a folder or some files of it as a batch's items; one that is another in its middle is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.exceptions import ArtifactMissingError, FlowOptionError, ItemFileError
from airflow_aiflow.hooks.object_paths import read_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder of three files of lines, and what other programs leave beside them."""
    for name, numbers in (("b.jsonl", (3, 4)), ("a.jsonl", (1, 2)), ("c.jsonl", (5,))):
        write(tmp_path / name, numbers)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.jsonl.crc").write_bytes(b"x")
    (tmp_path / "sub.jsonl").mkdir()
    return tmp_path


def write(path: Path, numbers: Any) -> None:
    path.write_text("".join(json.dumps({"id": number}) + "\n" for number in numbers))


def ids(path: str) -> list[int]:
    return [item["id"] for item in read_path(path, "items_path")]


def test_a_folder_is_read_in_the_order_of_its_files_names(folder: Path) -> None:
    assert ids(f"{folder}/") == [1, 2, 3, 4, 5]
    assert ids(f"{folder.as_uri()}/") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "found"),
    [("*.jsonl", [1, 2, 3, 4, 5]), ("b*", [3, 4]), ("*c*l", [5]), ("b.jsonl", [3, 4]), ("*", [1, 2, 3, 4, 5])],
)
def test_some_files_of_a_folder(folder: Path, name: str, found: list[int]) -> None:
    assert ids(f"{folder}/{name}") == found


def test_a_name_that_only_looks_like_a_pattern_is_one_file(folder: Path) -> None:
    write(folder / "b[1]?.jsonl", [9])
    assert ids(f"{folder}/b[1]?.jsonl") == [9]
    assert ids((folder / "b[1]?.jsonl").as_uri()) == [9]
    assert ids(f"{folder}/b[1]*") == [9]


@pytest.mark.parametrize("name", ["*.csv", "z*"])
def test_a_folder_without_such_a_file_is_no_list_without_items(folder: Path, name: str) -> None:
    with pytest.raises(ArtifactMissingError, match="there is no file"):
        ids(f"{folder}/{name}")
    with pytest.raises(ArtifactMissingError, match="there is no file"):
        ids(f"{folder}/nowhere/")


def test_files_of_several_kinds_are_not_read_as_one_list(folder: Path) -> None:
    (folder / "d.csv").write_text("id\n6\n")
    with pytest.raises(FlowOptionError, match=r"several kinds \(c.jsonl, d.csv\): name those that are meant"):
        ids(f"{folder}/")
    assert ids(f"{folder}/*.jsonl") == [1, 2, 3, 4, 5]


def test_a_file_that_holds_no_items_is_not_passed_over(folder: Path) -> None:
    (folder / "e.jsonl.gz").write_bytes(b"x")
    with pytest.raises(FlowOptionError, match=r"e\.jsonl\.gz"):
        ids(f"{folder}/")


def test_a_line_is_named_with_its_file(folder: Path) -> None:
    (folder / "b.jsonl").write_text('{"id": 3}\n{"id"')
    *_, bad, _ = read_path(f"{folder}/", "items_path")
    assert "b.jsonl, line 2" in str(bad.error)


#: More than is read at once.
MANY = range(200_000)


def test_a_file_that_is_replaced_while_it_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", MANY)
    items = read_path(f"{tmp_path}/a.jsonl", "items_path")
    assert next(items) == {"id": 0}
    write(tmp_path / "new", [7])
    (tmp_path / "new").replace(tmp_path / "a.jsonl")
    assert sum(1 for _ in items) == len(MANY) - 1


@pytest.mark.parametrize("grows", [True, False])
def test_a_file_that_is_written_to_while_it_is_read_is_no_list(tmp_path: Path, grows: bool) -> None:
    path = tmp_path / "a.jsonl"
    write(path, MANY)
    items = read_path(str(path), "items_path")
    assert next(items) == {"id": 0}
    if grows:
        with path.open("a") as file:
            file.write('{"id": 200000}\n')
    else:
        write(path, [7])
    with pytest.raises(ItemFileError, match=r"a\.jsonl whole: it was replaced or written to while it was read"):
        list(items)
