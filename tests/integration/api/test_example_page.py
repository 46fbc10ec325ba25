"""The example page in a real browser: submit, reload in mid-run, cut the network, come back, see the result."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from airflow_aiflow.ui.example_page import EXAMPLE, MEDIA_TYPES, files
from tests.integration.api.conftest import User, World
from tests.integration.api.stage import Stage, staged
from tests.integration.api.test_events import Server
from tests.unit.source_tree import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: Where the suite runs unattended, a missing browser is a fault and no reason to skip.
needs_browser = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="there is no chromium: apt-get install chromium"
)

#: Milliseconds.
PATIENCE = 30_000


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    made = Server(world)
    yield made
    made.stop()


@pytest.fixture
def stage(world: World) -> Iterator[Stage]:
    with staged(world) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context(base_url=server.url)
    context.set_default_timeout(PATIENCE)
    made = context.new_page()
    problems: list[str] = []
    asked: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda said: problems.append(said.text) if "Content Security" in said.text else None)
    made.on("request", lambda request: asked.append(request.url))
    yield made
    context.close()
    assert problems == []
    assert [url for url in asked if not url.startswith((server.url, "data:"))] == []  # nothing from elsewhere


def run_id(world: World, page: Page) -> str:
    """Say which run the page's first task is."""
    item = page.locator("#jobs li[data-id]").first
    item.wait_for()
    one = world.submissions.get(UUID(item.get_attribute("data-id")))
    assert one is not None
    return one.run_id


def shows(page: Page, part: str, text: str) -> None:
    expect(page.locator(f"#jobs li {part}").first).to_contain_text(text, timeout=PATIENCE)


def piece(stage: Stage, run: str, at: int, text: str) -> None:
    stage.do(run, lambda flow: flow.emit("llm.delta", name="answer", at=at, text=text))


@needs_browser
def test_submit_reload_cut_the_network_come_back_and_see_the_result(world: World, page: Page, stage: Stage) -> None:
    page.goto("/aiflow/example")
    page.get_by_role("button", name="Submit").dblclick()
    run = run_id(world, page)
    stage.begin(run)
    shows(page, ".state", "running")
    stage.do(run, lambda flow: flow.progress(1, 4, "found 3 passages"))
    shows(page, ".message", "1 of 4 found 3 passages")
    piece(stage, run, 0, "It is due ")
    shows(page, ".text", "It is due")

    page.reload()
    shows(page, ".message", "1 of 4 found 3 passages")
    shows(page, ".text", "It is due")
    assert run_id(world, page) == run

    page.context.set_offline(True)
    expect(page.locator("#offline")).to_be_visible(timeout=PATIENCE)
    stage.do(run, lambda flow: flow.progress(3, 4, "almost"))
    piece(stage, run, 10, "on Monday.")
    page.context.set_offline(False)
    expect(page.locator("#offline")).to_be_hidden(timeout=PATIENCE)
    shows(page, ".message", "3 of 4 almost")
    shows(page, ".text", "It is due on Monday.")

    stage.end(run, "It is due on Monday.")
    shows(page, ".result", "It is due on Monday.")
    shows(page, ".state", "succeeded")
    expect(page.locator("#jobs li")).to_have_count(1)  # pressed twice, loaded twice: one task
    assert len(world.runs.runs) == 1
    page.reload()
    expect(page.locator("#jobs li")).to_have_count(0)


@needs_browser
def test_what_is_refused_is_said(page: Page) -> None:
    page.goto("/aiflow/example")
    page.locator("#input").fill("{")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#wrong")).to_contain_text("no JSON", timeout=PATIENCE)
    page.locator("#input").fill('{"wrong": 1}')
    page.get_by_role("button", name="Submit").click()
    shows(page, ".state", "refused")
    shows(page, ".message", "unknown parameter")


@needs_browser
def test_a_text_of_a_result_is_text(world: World, page: Page, stage: Stage) -> None:
    page.goto("/aiflow/example")
    page.get_by_role("button", name="Submit").click()
    run = run_id(world, page)
    stage.begin(run)
    stage.end(run, "<img src=x onerror=alert(1)>")
    shows(page, ".result", "<img src=x onerror=alert(1)>")


def test_who_is_signed_out_is_sent_to_the_sign_in_and_gets_no_file(world: World) -> None:
    world.user = User("nobody")
    answer = world.client.get("/aiflow/example", follow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (307, "../api/v2/auth/login?next=/aiflow/example")
    for name in MEDIA_TYPES:
        assert world.client.get(f"/aiflow/example/{name}").status_code == 401


def test_its_policy_lets_nothing_in(world: World) -> None:
    for path in ("example", "example/page.js", "example/aiflow.js", "example/page.css"):
        answer = world.client.get(f"/aiflow/{path}")
        policy = answer.headers["Content-Security-Policy"]
        assert answer.status_code == 200
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["../app.py", "..%2f..%2fplugin.py", "index.html", "page.js%00", "other.js"])
def test_nothing_else_is_served(world: World, name: str) -> None:
    assert world.client.get(f"/aiflow/example/{name}").status_code in (404, 422)


def test_the_client_is_one_file() -> None:
    assert files()["aiflow.js"] == (ROOT / "clients/js/aiflow.js").read_bytes()
    assert not (EXAMPLE / "aiflow.js").exists()  # in the source tree; the wheel has it there
