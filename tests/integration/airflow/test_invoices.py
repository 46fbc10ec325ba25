"""The job of invoices runs as it stands: its empty functions are filled in on a copy, nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_aiflow.hooks import aiflow
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local import stack_connections
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.storage import migrate
from tests.integration.airflow.conftest import Airflow
from tests.integration.airflow.pay_server import PayServer, pay_server
from tests.integration.airflow.test_jobs import filled

#: Each test's invoices are its own: the ledger is shared, and a key is unique in the DAG.
FILES = 3


def bodies(folder: str) -> dict[str, str]:
    return {
        "def list_files() -> list[str]: ...": f"""
def list_files() -> list[str]:
    return [f"{folder}/{{name}}.pdf" for name in ("alpha", "beta", "gamma")]
""",
        "def read_pdf(path: str) -> str: ...": """
def read_pdf(path: str) -> str:
    return f"Invoice {path}. It is to be paid within thirty days."
""",
    }


@pytest.fixture
def erp(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the ERP's database, which the connection ``erp`` leads to."""
    dsn = postgres_server.fresh_database("erp")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA ap")
        connection.execute(
            "CREATE TABLE ap.invoice (id bigint GENERATED ALWAYS AS IDENTITY, number text, iban text, cents bigint)"
        )
    monkeypatch.setenv("AIRFLOW_CONN_ERP", dsn)
    # A task that fails here fails the test soon.
    monkeypatch.setenv("AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY", "0")
    return dsn


@pytest.fixture
def pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PayServer]:
    """Give the payment service, found by the variables of a company's network."""
    with pay_server(tmp_path) as server:
        monkeypatch.setenv("HTTPS_PROXY", server.proxy)
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        yield server


@pytest.fixture
def model(model_service: ModelService, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelService]:
    """Give the stand-in model behind the default connection."""
    monkeypatch.setenv("AIRFLOW_CONN_PYDANTICAI_DEFAULT", json.dumps(stack_connections.model(model_service)))
    yield model_service
    PydanticAICaller().close()  # a process keeps its client, and the next test has a server of its own


def book(airflow: Airflow, folder: str) -> None:
    """Run the DAG file once; always under one name, for a class of a DAG file bears it."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.file import get_unique_dag_module_name

    file = airflow.home / "dags" / "c_invoices.py"
    file.write_text(filled("c_invoices.txt", bodies(folder)))
    bag = DagBag(dag_folder=str(file))
    assert bag.import_errors == {}
    try:
        run = bag.dags["invoices"].test()
    finally:
        del sys.modules[get_unique_dag_module_name(str(file))]
        file.unlink()
    assert run.state == "success"


def booked(erp: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(erp) as connection:
        return connection.execute("SELECT number, iban, cents FROM ap.invoice ORDER BY id").fetchall()


def test_each_invoice_is_booked_and_paid_once(
    airflow: Airflow, model: ModelService, erp: str, pay: PayServer, postgres_server: PostgresServer
) -> None:
    """One test, for a process keeps its client of the model's server, and each test has a server of its own."""
    book(airflow, "first")
    rows = booked(erp)
    assert len({row[0] for row in rows}) == len(rows) == FILES
    assert [(each["number"], each["iban"], each["cents"]) for each in pay.payouts] == rows
    assert len(model.requests()) == FILES

    book(airflow, "first")  # the next hour finds the same files
    assert booked(erp) == rows
    assert pay.posts == FILES

    pay.lose = 1  # a payment is made, and its answer is lost: the service is asked about it
    book(airflow, "second")
    rows = booked(erp)
    assert len(rows) == len(pay.payouts) == pay.posts == 2 * FILES

    # The ledger is lost: the target's row is the truth, and the payment's target knows its key.
    another = postgres_server.fresh_database("ledger")
    migrate.upgrade(another)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_AIFLOW_LEDGER", another)
        aiflow.close_all()
        book(airflow, "first")
    aiflow.close_all()
    assert booked(erp) == rows
    assert len(pay.payouts) == 2 * FILES
