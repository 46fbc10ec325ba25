"""The JavaScript client: its own tests, on a real server with a real ledger; its size, and that the wheel has it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.integration.api.conftest import World
from tests.integration.api.rough_proxy import RoughProxy, rough
from tests.integration.api.stage import Stage, staged
from tests.integration.api.test_events import Server
from tests.ui.npm import MODULES, need_modules
from tests.unit.source_tree import ROOT

NODE = shutil.which("node")
CLIENT = ROOT / "clients" / "js"

#: Bytes, gzipped.
SMALL = 6_000


class Control:
    """Let another program play: each deed is a route of the server under test."""

    def __init__(self, world: World, stage: Stage, stack: ExitStack) -> None:
        self.world, self.stage, self.stack = world, stage, stack
        self.server: Server | None = None
        self.started = 1
        self.proxies: list[RoughProxy] = []
        for deed in (
            self.begin,
            self.emit,
            self.progress,
            self.delta,
            self.fail,
            self.end,
            self.count,
            self.proxy,
            self.cut,
            self.restart,
            self.starts,
        ):
            world.server.add_api_route(f"/control/{deed.__name__}", deed, methods=["POST"])

    def run_id(self, body: dict[str, Any]) -> str:
        one = self.world.submissions.get(UUID(body["id"]))
        assert one is not None
        return one.run_id

    def begin(self, body: dict[str, Any]) -> None:
        self.stage.begin(self.run_id(body))

    def emit(self, body: dict[str, Any]) -> None:
        self.stage.emit(self.run_id(body), *body["numbers"])

    def progress(self, body: dict[str, Any]) -> None:
        self.stage.do(self.run_id(body), lambda flow: flow.progress(body["done"], body["total"], body["message"]))

    def delta(self, body: dict[str, Any]) -> None:
        self.stage.do(self.run_id(body), lambda flow: flow.emit("llm.delta", name="answer", at=0, text=body["text"]))

    def fail(self, body: dict[str, Any]) -> None:
        self.stage.fail(self.run_id(body))

    def end(self, body: dict[str, Any]) -> None:
        self.stage.end(self.run_id(body), body.get("result", "because"), body.get("state", "success"))

    def count(self, body: dict[str, Any]) -> int:
        with psycopg.connect(self.world.dsn, autocommit=True) as connection:
            [(count,)] = connection.execute(
                "select count(*) from aiflow.submission where input = %s",
                (json.dumps(body, separators=(",", ":")).encode(),),
            ).fetchall()
            return int(count)

    def proxy(self, body: dict[str, Any]) -> dict[str, Any]:
        assert self.server is not None
        self.proxies.append(self.stack.enter_context(rough(self.server.port, body["mode"])))
        return {"url": self.proxies[-1].url, "number": len(self.proxies) - 1}

    def cut(self, body: dict[str, Any]) -> None:
        self.proxies[body["number"]].cut()

    def restart(self) -> None:
        server = self.server
        assert server is not None

        def anew() -> None:
            server.stop()
            self.started += 1
            server.start()

        threading.Thread(target=anew, daemon=True).start()

    def starts(self) -> int:
        return self.started


@pytest.fixture
def url(world: World) -> Iterator[str]:
    with ExitStack() as stack:
        control = Control(world, stack.enter_context(staged(world)), stack)
        control.server = Server(world)
        yield control.server.url
        control.server.stop()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_its_own_tests_pass_against_a_real_server(url: str) -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", "--test-timeout=200000", "test/"],
        cwd=CLIENT,
        env=os.environ | {"AIFLOW_URL": url, "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert "\n# pass 0\n" not in done.stdout


def test_its_types_allow_what_they_should_and_no_more() -> None:
    need_modules()
    wishes = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    done = subprocess.run(
        [MODULES / ".bin" / "tsc", *wishes, CLIENT / "test" / "types.ts"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


def test_it_is_small() -> None:
    assert len(gzip.compress((CLIENT / "aiflow.js").read_bytes(), 9)) < SMALL


def test_it_needs_nothing_else() -> None:
    text = (CLIENT / "aiflow.js").read_text()
    assert "import " not in text
    assert "dependencies" not in json.loads((CLIENT / "package.json").read_text())
