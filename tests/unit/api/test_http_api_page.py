"""The pages of the routes name each of them, and none that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI

from airflow_aiflow.api.app import create_app
from airflow_aiflow.api.reading_app import include
from tests.unit.source_tree import ROOT

PAGE = (ROOT / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
SUBMIT_PAGE = (ROOT / "docs" / "how-to" / "submit-and-follow.md").read_text(encoding="utf-8")


def test_the_page_has_every_route() -> None:
    app = FastAPI()
    include(app, lambda: pytest.fail("nothing is asked"))
    routes = {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    assert set(re.findall(r"^\| `((?:GET|POST) \S+)` \|", PAGE, re.MULTILINE)) == routes


def test_the_page_on_submissions_has_every_other_route() -> None:
    reading = FastAPI()
    include(reading, lambda: pytest.fail("nothing is asked"))
    whole = create_app().openapi()["paths"]
    wanted = {
        f"{method.upper()} {path.removeprefix('/api/v1').replace('{submission_id}', '{id}')}"
        for path in whole.keys() - reading.openapi()["paths"].keys() - {"/metrics"}
        for method in whole[path]
    }
    assert set(shown_routes(SUBMIT_PAGE)) - {"GET /openapi.json"} == wanted


def shown_routes(page: str) -> Iterator[str]:
    """Read the first cells of the table of routes: ``:resume`` behind ``POST /a/{id}:pause`` stands for its like."""
    for cell in re.findall(r"^\| (`(?:GET|POST) [^|]*) \|", page, re.MULTILINE):
        first, *more = re.findall(r"`([^`]+)`", cell)
        route = first.partition("?")[0]
        yield route
        for word in more:
            yield route.rpartition(":")[0] + word
