"""The count file: what arrived, what was answered, and a torn last line."""

from __future__ import annotations

from pathlib import Path

from airflow_aiflow.local.request_log import RequestLog, read_requests


def test_requests_and_their_answers(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "count")
    log.arrived("a", None, model="m")
    log.arrived("b", "cut")
    log.arrived("c", "status")
    log.answered("a", 200)
    log.answered("c", 429)
    found = read_requests(tmp_path / "count")
    assert [(each.id, each.fault, each.status, each.answered) for each in found] == [
        ("a", None, 200, True),
        ("b", "cut", None, False),
        ("c", "status", 429, False),
    ]
    assert found[0].fields == {"model": "m"}


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "count"
    RequestLog(path).arrived("a", None)
    with path.open("ab") as file:
        file.write(b'{"event": "requ')
    assert [each.id for each in read_requests(path)] == ["a"]


def test_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    assert read_requests(tmp_path / "none") == []
