"""`aiflow limits` over a real ledger: what one command sets, tasks and the other commands see."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.durable.limit import Wish
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_limits import PostgresLimits

Run = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def run(dsn: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with ``--json``; give its exit code and what it printed."""

    def command(*words: str) -> tuple[int, Any]:
        code = main(["limits", *words, "--dsn", dsn, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return command


def test_a_limit_is_set_changed_listed_and_removed(run: Run, dsn: str) -> None:
    assert run("set", "openai", "--rpm", "500", "--tpm", "200000") == (
        0,
        {"name": "openai", "rpm": 500, "tpm": 200_000, "concurrency": None},
    )
    assert run("set", "openai", "--concurrency", "16", "--tpm", "none")[1]["rpm"] == 500, "what is not named stays"
    with closing(PostgresLimits.connect(dsn)) as limits:
        lent = limits.exchange("openai", uuid4(), Wish(used_requests=3, want_slots=2, waiting=2), ttl=15)
    assert lent is not None
    assert (lent.requests, lent.tokens, lent.slots) == (0, None, 2)
    code, listed = run("list")
    assert code == 0
    assert listed["limits"] == [
        {
            "name": "openai",
            "rpm": 500,
            "tpm": None,
            "concurrency": 16,
            "used_requests": 3,
            "used_tokens": 0,
            "slots": 2,
            "workers": 1,
            "waiting": 2,
        }
    ]
    assert run("remove", "openai") == (0, {"name": "openai", "removed": True})
    assert run("remove", "openai")[0] == 1
    assert run("list")[1] == {"limits": []}


def test_text_for_people(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "list", "--dsn", dsn]) == 0
    assert "aiflow limits set NAME" in capsys.readouterr().out
    assert main(["limits", "set", "local", "--concurrency", "2", "--dsn", dsn]) == 0
    assert "limit 'local': 2 calls at once" in capsys.readouterr().out
    main(["limits", "list", "--dsn", dsn])
    assert "REQUESTS/MIN" in capsys.readouterr().out
    main(["limits", "remove", "local", "--dsn", dsn])


@pytest.mark.parametrize(
    "words", [["--rpm", "0"], ["--rpm", "-5"], ["--tpm", "many"], ["--rpm", "1.5"], ["--rpm", "9" * 12]]
)
def test_what_is_no_limit_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["limits", "set", "x", *words])
    assert caught.value.code == 2


@pytest.mark.parametrize(("name", "words"), [("", ["--rpm", "5"]), ("a\nb", ["--rpm", "5"]), ("x", [])])
def test_a_wrong_name_and_an_empty_limit(run: Run, name: str, words: list[str]) -> None:
    code, said = run("set", name, *words)
    assert code == 1
    assert "limit" in said["message"]
