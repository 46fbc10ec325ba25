"""What the page on submitting shows in Python, JavaScript and with curl is carried out as it stands there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import psycopg
import pytest

from tests.integration.api.conftest import World
from tests.integration.api.stage import Stage, staged
from tests.integration.api.test_events import Server, until
from tests.pages import DOCS, Block, blocks_of
from tests.unit.source_tree import ROOT

PAGE = DOCS / "how-to" / "submit-and-follow.md"
ADDRESS = "https://airflow.example.com"
ANSWER = "On the first of each month."
PATIENCE = 60.0


@pytest.fixture
def stage(world: World) -> Iterator[Stage]:
    with staged(world) as made:
        yield made


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    world.server.add_api_route("/auth/token", lambda: {"access_token": "any"}, methods=["POST"])
    made = Server(world)
    yield made
    made.stop()


def block(language: str, mark: str) -> Block:
    """Give the page's one block of a language that holds a text."""
    [found] = [each for each in blocks_of(PAGE) if each.language == language and mark in each.text]
    assert ADDRESS in found.text
    return found


def played(world: World, stage: Stage, client: Callable[[], str]) -> str:
    """Let a client run, and be the pipeline for it; give what it prints."""
    with ThreadPoolExecutor(1) as pool:
        printed = pool.submit(client)
        until(lambda: world.runs.runs or printed.done())
        if printed.done():
            return printed.result()
        [run_id] = world.runs.runs
        stage.begin(run_id)
        stage.do(run_id, lambda flow: flow.progress(1, 2, "found 3 passages"))
        stage.end(run_id, ANSWER)
        return printed.result(PATIENCE)


def test_python(world: World, server: Server, stage: Stage) -> None:
    text = block("python", "AiflowClient").text.replace(ADDRESS, server.url)

    def run() -> str:
        with redirect_stdout(StringIO()) as printed:
            exec(compile(text, str(PAGE), "exec", dont_inherit=True), {"password": "any"})  # noqa: S102
        return printed.getvalue()

    said = played(world, stage, run)
    assert said.splitlines()[-1] == ANSWER
    assert "found 3 passages" in said


def program(command: list[str], server: Server, folder: Path) -> str:
    environment = os.environ | {"TOKEN": "any", "no_proxy": "*", "AIFLOW_URL": server.url}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl and jq are not installed")
def test_curl(world: World, server: Server, stage: Stage, tmp_path: Path) -> None:
    text = "set -e\n" + block("bash", "curl").text.replace(ADDRESS, server.url)
    said = played(world, stage, lambda: program(["bash", "-c", text], server, tmp_path))
    assert said.endswith(f'"{ANSWER}"')
    assert "found 3 passages" in said
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        assert connection.execute("select key from aiflow.submission").fetchall() == [("order 4711",)]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_javascript(world: World, server: Server, stage: Stage, tmp_path: Path) -> None:
    text = block("javascript", "AiflowClient").text.replace(ADDRESS, server.url)
    shutil.copy(ROOT / "clients/js/aiflow.js", tmp_path / "aiflow.js")
    (tmp_path / "page.mjs").write_text(f'const token = "any";\n{text}')
    (tmp_path / "package.json").write_text('{"type": "module"}')
    said = played(world, stage, lambda: program(["node", "page.mjs"], server, tmp_path))
    assert said.splitlines() == ["1 of 2: found 3 passages", ANSWER]
