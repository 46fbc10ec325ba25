"""Airflow's own API server, its users and cookies: sockets past its middleware, the example page behind its sign-in."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import expect, sync_playwright
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from bench.submits import Place, alone

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: Seconds for an answer of a server that has just started.
PATIENCE = 60.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("airflow")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)  # PostgreSQL runs as another user, where the tests run as root
    with alone(folder) as made:
        yield made


@pytest.fixture(scope="module")
def token(place: Place) -> str:
    login = {"username": "admin", "password": place.password}
    return str(httpx.post(f"{place.url}/auth/token", json=login, timeout=PATIENCE).json()["access_token"])


def submit(place: Place, token: str, key: str) -> dict[str, Any]:
    body = {"pipeline": "nothing", "input": {}, "idempotency_key": key}
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{place.url}/aiflow/api/v1/submissions", json=body, headers=headers, timeout=PATIENCE)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def test_twenty_equal_submits_are_one_dag_run(place: Place, token: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: submit(place, token, "twenty"), range(20)))
    [run_id] = {one["run_id"] for one in found}
    submit(place, token, "twenty")
    with psycopg.connect(place.postgres.dsn("airflow", "airflow"), autocommit=True) as connection:
        [(count,)] = connection.execute("select count(*) from dag_run where run_id = %s", (run_id,)).fetchall()
    assert count == 1


def test_a_socket_by_cookie_comes_from_this_site_alone(place: Place, token: str) -> None:
    one = submit(place, token, "socket")
    url = place.url.replace("http", "ws") + "/aiflow/api/v1/ws"
    cookie = {"Cookie": f"_token={token}"}
    with connect(url, additional_headers=cookie, origin=Origin(place.url), proxy=None) as socket:
        socket.send(json.dumps({"op": "subscribe", "submission_id": one["submission_id"]}))
        assert json.loads(socket.recv(PATIENCE))["state"] == "queued"
    own, evil = Origin(place.url), Origin("https://evil.example")
    refusals: list[tuple[dict[str, str], Origin | None]] = [(cookie, None), (cookie, evil), ({}, own)]
    for headers, origin in refusals:
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(url, additional_headers=headers, origin=origin, proxy=None),
        ):
            pass
        assert refused.value.response.status_code in (401, 403)


@pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="there is no chromium: apt-get install chromium"
)
def test_the_example_page_behind_airflows_sign_in(place: Place, token: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(base_url=place.url)
        page.set_default_timeout(PATIENCE * 1000)
        page.goto("/aiflow/example")
        assert page.url.startswith(f"{place.url}/auth/login")
        page.context.add_cookies([{"name": "_token", "value": token, "url": place.url}])
        page.goto("/aiflow/example")
        page.locator("#pipeline").fill("nothing")
        page.locator("#input").fill("{}")
        page.get_by_role("button", name="Submit").dblclick()
        state = page.locator("#jobs .state").first
        expect(state).to_have_text("queued", timeout=PATIENCE * 1000)
        page.reload()
        expect(state).to_have_text("queued", timeout=PATIENCE * 1000)
        assert page.locator("#jobs li").count() == 1
        page.locator("#jobs .cancel").first.click()
        expect(state).to_have_text("cancelled", timeout=PATIENCE * 1000)
        browser.close()
