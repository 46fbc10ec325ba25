"""`aiflow submit | watch | cancel | submissions` against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from airflow_aiflow.cli.__main__ import main
from tests.integration.api.conftest import World
from tests.integration.api.test_events import Server, until


@pytest.fixture
def server(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server(world)
    connection = {"conn_type": "http", "host": "127.0.0.1", "port": made.port, "password": "a token"}
    monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(connection))
    yield made
    made.stop()


def test_a_task_is_handed_in_followed_and_listed(
    world: World, server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "question.json"
    file.write_text('{"question": "why?"}')
    assert main(["submit", "answer", "--input", f"@{file}", "--key", "k", "--label", "team=a", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["state"], one["labels"]) == ("queued", {"team": "a"})
    until(lambda: one["run_id"] in world.runs.runs)
    world.runs.runs[one["run_id"]].state = "success"
    world.runs.results[one["run_id"]] = ["because"]
    assert main(["submit", "answer", "--input", '{"question": "why?"}', "--key", "k", "--wait"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == ["because"]
    assert "succeeded" in said.err
    assert main(["watch", one["submission_id"]]) == 0
    assert main(["submissions", "--state", "succeeded"]) == 0
    assert one["submission_id"] in capsys.readouterr().out


def test_what_ends_otherwise_is_a_finding(world: World, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "answer", "--input", '{"question": "why?"}', "--key", "k", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert main(["cancel", one["submission_id"]]) == 0
    assert "cancelled" in capsys.readouterr().out
    assert main(["watch", one["submission_id"]]) == 1


def test_each_word_is_said_and_asked_twice_done_once(
    world: World, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "submit",
        "answer",
        "--input",
        '{"question": "why?"}',
        "--key",
        "k",
        "--label",
        "team=a",
        "--priority",
        "7",
    ]
    assert main([*words, "--deadline", "2099-12-01T00:00:00Z", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    until(lambda: one["run_id"] in world.runs.runs)
    kept = world.submissions.get(UUID(one["submission_id"]))
    assert kept is not None
    assert (kept.priority, str(kept.deadline)) == (7, "2099-12-01 00:00:00+00:00")
    run = world.runs.runs[one["run_id"]]

    def say(word: str, status: int = 0) -> str:
        assert main(["submissions", word, one["submission_id"]]) == status
        said = capsys.readouterr()
        return said.err if status else said.out

    for _ in range(2):
        assert f"{one['submission_id']}  queued, pausing" in say("pause")
        assert run.held
    assert "pausing" in say("show")
    for _ in range(2):
        assert "pausing" not in say("resume")
        assert not run.held
    assert "409: it is queued" in say("result", 1)
    for _ in range(2):
        assert "cancelled" in say("cancel")
    assert "409" in say("pause", 1)
    for _ in range(2):
        assert "queued" in say("retry")
    assert len(world.runs.cleared) == 1
    run.state = "success"
    world.runs.results[one["run_id"]] = {"answer": "because"}
    assert json.loads(say("result")) == {"answer": "because"}
    assert main(["submissions", "--json", "show", one["submission_id"]]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "succeeded"
    assert main(["submissions", "--label", "team=a", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["submissions"]) == 1
    assert main(["submissions", "--label", "team=b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["submissions"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "answer", "--input", "{"], "--input is not JSON"),
        (["submit", "answer", "--input", "[1]"], "must be a JSON object"),
        (["submit", "answer", "--input", "@nowhere.json"], "nowhere.json can't be read"),
        (["submit", "none"], "404: there is no pipeline 'none'"),
        (["submit", "answer", "--input", '{"bodi": 1}'], "422: unknown parameter"),
        (["submissions", "pause", "01930000-0000-7000-8000-000000000000"], "404"),
        (["watch", "01930000-0000-7000-8000-000000000000"], "404"),
    ],
)
def test_what_is_wrong_is_named(
    world: World, server: Server, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(arguments) == 1
    assert said in capsys.readouterr().err
