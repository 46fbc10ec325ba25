"""The page of the routes names each of them, and none that is not there."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI

from airflow_aiflow.api.reading_app import include
from tests.unit.source_tree import ROOT

PAGE = (ROOT / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")


def test_the_page_has_every_route() -> None:
    app = FastAPI()
    include(app, lambda: pytest.fail("nothing is asked"))
    routes = {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    assert set(re.findall(r"^\| `((?:GET|POST) \S+)` \|", PAGE, re.MULTILINE)) == routes
