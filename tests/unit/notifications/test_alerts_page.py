"""The page on alerts lists what a template may name."""

from __future__ import annotations

from dataclasses import fields

from airflow_aiflow.notifications.alert import Alert
from tests.pages import DOCS


def test_the_page_lists_every_field_of_an_incident() -> None:
    lines = (DOCS / "how-to" / "alerts.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| `incident.` | holds |") + 2
    named = []
    for line in lines[start:]:
        if not line.startswith("| `"):
            break
        named.append(line.split("`")[1])
    properties = [name for name, value in vars(Alert).items() if isinstance(value, property)]
    assert sorted(named) == sorted([*(one.name for one in fields(Alert)), *properties])
