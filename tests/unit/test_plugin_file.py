"""The file for Airflow's plugins folder: it must not register what the package's entry point registers."""

from __future__ import annotations

import importlib.metadata
import runpy
from typing import Any

import pytest

from tests.unit.source_tree import ROOT

FILE = ROOT / "plugins" / "aiflow_plugin.py"


def plugins() -> list[Any]:
    """Return what Airflow would take from the file: the classes in its namespace that are plugins."""
    found = runpy.run_path(str(FILE)).values()
    return [value for value in found if isinstance(value, type) and value.__name__.endswith("Plugin")]


def test_gives_nothing_where_the_package_is_installed() -> None:
    points = importlib.metadata.entry_points(group="airflow.plugins")
    assert any(point.value.startswith("airflow_aiflow.") for point in points), "the tests run on an installed package"
    assert plugins() == []


def test_gives_the_plugin_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [importlib.metadata.EntryPoint("other", "other.plugin:OtherPlugin", "airflow.plugins")]
    ours = "airflow.plugins"
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: others if group == ours else [])
    (plugin,) = plugins()
    assert plugin.name == "aiflow"
