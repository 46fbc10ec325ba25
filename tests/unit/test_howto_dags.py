"""How-to pages about batches and models each bring a DAG that fits on a screen; that they run is held elsewhere."""

from __future__ import annotations

import pytest

from tests.pages import DOCS, blocks_of

#: Pages whose first example is a whole DAG.
PAGES = ("batch", "reuse", "budget", "agents", "embeddings", "model-calls", "limits")

#: Lines of a DAG that people read at a glance.
MOST_LINES = 40


@pytest.mark.parametrize("name", PAGES)
def test_its_dag_is_short(name: str) -> None:
    dags = [block.text for block in blocks_of(DOCS / "how-to" / f"{name}.md") if block.kind == "dag"]
    assert dags
    assert [len(text.splitlines()) for text in dags if len(text.splitlines()) >= MOST_LINES] == []
