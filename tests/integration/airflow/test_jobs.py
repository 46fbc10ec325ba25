"""
The jobs by which the API was settled run as they stand: their empty functions are filled in on a copy, nothing else.
They are kept as texts, so that no tool rewrites them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_aiflow.durable.limit import Limit
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local import stack_connections
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.storage.postgres_limits import PostgresLimits
from tests.integration.airflow.conftest import Airflow, Ran

JOBS = Path(__file__).parents[2] / "jobs"

CONTRACTS = {
    "def split_pdf(path: str) -> list[str]: ...": """
def split_pdf(path: str) -> list[str]:
    return [f"Page {number} of {path}: the supplier is liable for damage." for number in range(5)]
""",
    "def render_html(notes, verdict) -> str: ...": """
def render_html(notes, verdict) -> str:
    return f"<h1>Risk {verdict.risk}</h1>" + "".join(f"<p>{note}</p>" for note in notes)
""",
    "def send_mail(to: str, subject: str, link: str) -> None: ...": """
seen = []
def send_mail(to: str, subject: str, link: str) -> None:
    seen.append((to, subject, link))
""",
}


MAPPING = {
    "    def list_docs() -> list[str]: ...": """
    def list_docs() -> list[str]:
        return ["a.txt", "b.txt", "c.txt"]
""",
    "def read(doc: str) -> str: ...": """
def read(doc: str) -> str:
    return f"{doc}: the tenant pays ninety euros on the first day of each month."
""",
    "def put_index(summaries: list[str]) -> None: ...": """
seen = []
def put_index(summaries: list[str]) -> None:
    seen.append(summaries)
""",
}


def filled(name: str, bodies: dict[str, str]) -> str:
    source = (JOBS / name).read_text()
    for stub, body in bodies.items():
        assert source.count(f"{stub}\n") == 1, stub
        source = source.replace(f"{stub}\n", body)
    return source


@pytest.fixture
def model(model_service: ModelService, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelService]:
    """Give the stand-in model behind the default connection."""
    monkeypatch.setenv("AIRFLOW_CONN_PYDANTICAI_DEFAULT", json.dumps(stack_connections.model(model_service)))
    yield model_service
    PydanticAICaller().close()  # a process keeps its client, and the next test has a server of its own


def review(airflow: Airflow, path: str) -> Ran:
    source = filled("b_contracts.txt", CONTRACTS)
    ran = airflow.run(source, head="", conf={"path": path, "to": "legal@example.com"})
    assert ran.run.state == "success", ran.states
    return ran


def test_contract_review(airflow: Airflow, model: ModelService) -> None:
    ran = review(airflow, "contract/a.pdf")
    [(to, subject, link)] = ran.seen
    assert to == "legal@example.com"
    assert subject.startswith("Risk ")
    assert link.startswith("s3://")
    assert len(model.requests()) == 6, "five pages and one assessment"

    again = review(airflow, "contract/a.pdf")
    assert again.seen == [], "one e-mail for a contract and an address, also in another run"
    assert review(airflow, "contract/b.pdf").seen != []


@pytest.fixture
def openai_limit(airflow: Airflow) -> Iterator[PostgresLimits]:
    """Set the limit that the jobs name, as `aiflow limits set` does."""
    with closing(PostgresLimits.connect(airflow.ledger)) as limits:
        limits.set_limit(Limit("openai", rpm=600, concurrency=4))
        yield limits
        limits.remove_limit("openai")


def test_mapping_shares_one_limit(airflow: Airflow, model: ModelService, openai_limit: PostgresLimits) -> None:
    ran = airflow.run(filled("g_mapping.txt", MAPPING), head="")
    assert ran.states == {"list_docs": ["success"], "summarise": ["success"] * 3, "publish": ["success"]}
    [summaries] = ran.seen
    assert len(summaries) == 3
    assert len(model.requests()) == 3
    [view] = openai_limit.limits()
    assert (view.used_requests, view.slots, view.workers) == (3, 0, 0), "each call counted, and every share came back"


def test_mapping_sends_nothing_without_its_limit(airflow: Airflow, model: ModelService) -> None:
    source = filled("g_mapping.txt", MAPPING).replace('"retries": 3', '"retries": 0')
    ran = airflow.run(source, head="")
    assert ran.states["summarise"] == ["failed"] * 3
    assert model.requests() == []
