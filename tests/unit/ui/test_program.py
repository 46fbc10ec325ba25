"""What Airflow is told of the pages, and how their files are served: one address for one state of the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from airflow_aiflow.ui import program, serving
from airflow_aiflow.ui.pages import react_apps

#: The places that Airflow's UI knows; any other one would make it drop the whole plugin.
DESTINATIONS = {"nav", "dag", "dag_run", "task", "task_instance", "dashboard", "base"}


@pytest.fixture
def client() -> TestClient:
    """Give a client of an app that serves the program."""
    app = Starlette()
    app.add_route(serving.PATH, serving.endpoint())
    return TestClient(app)


def test_each_place_has_a_route_of_its_own_and_one_that_airflow_knows() -> None:
    pages = react_apps()
    routes = [page["url_route"] for page in pages]
    assert len(set(routes)) == len(routes)
    assert {str(page["destination"]) for page in pages} <= DESTINATIONS


def test_addresses_are_relative_so_that_a_prefix_is_kept() -> None:
    for page in react_apps():
        for name in ("bundle_url", "icon", "icon_dark_mode"):
            assert re.fullmatch(r"aiflow/static/[0-9a-f]{12}/[a-z_]+\.(js|svg)", str(page[name]))
            assert str(page[name]).rpartition("/")[2] in program.files()


def test_every_page_is_registered_under_the_name_that_airflow_looks_up() -> None:
    main = program.files()["main.js"].decode()
    registered = set(re.findall(r'^register\("([^"]+)"', main, re.MULTILINE))
    assert registered == {str(page["name"]) for page in react_apps()}


@pytest.mark.parametrize(
    ("name", "kind"), [("main.js", "text/javascript"), ("app.css", "text/css"), ("icon.svg", "image/svg+xml")]
)
def test_a_browser_gets_a_type_that_it_runs_and_may_keep_the_file(client: TestClient, name: str, kind: str) -> None:
    answer = client.get(f"/static/{program.version()}/{name}")
    assert answer.content == program.files()[name]
    assert answer.headers["content-type"].startswith(kind)
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_under_another_version_the_file_comes_but_is_not_kept(client: TestClient) -> None:
    answer = client.get("/static/000000000000/main.js")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["..%2Fpages.py", "..%2F..%2Fplugin.py", "pages.py", "nothing.js", ""])
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/static/{program.version()}/{name}").status_code == 404


def test_one_changed_file_is_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def version_of(text: str) -> str:
        (tmp_path / "main.js").write_text(text)
        program.files.cache_clear()
        program.version.cache_clear()
        return program.version()

    monkeypatch.setattr(program, "STATIC", tmp_path)
    try:
        assert version_of("one") != version_of("two")
        assert version_of("one") == version_of("one")
    finally:
        program.files.cache_clear()
        program.version.cache_clear()
