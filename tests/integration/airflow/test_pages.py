"""Every DAG of the README and docs/ runs under Airflow's own task runner; the README's does what the README says."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_aiflow.durable.limit import Limit
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import MailService, ModelService, RecordsService
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.storage.postgres_limits import PostgresLimits
from tests.integration.airflow.conftest import Airflow, Ran
from tests.pages import README, Block, all_blocks, blocks_of

#: What a page's DAG would reach elsewhere, and what stands in for it here.
MAIL = 'smtplib.SMTP("mail.example.com", 25, timeout=30)'
PAYOUTS, RECORDS = "/payouts", "/records"

#: Airflow waits five minutes before a retry, unless a page says how long.
RETRIES = re.compile(r"\bretries=\d+(?!, retry_delay)\b")


@pytest.fixture
def model(model_service: ModelService, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelService]:
    """Give the stand-in model, as the connection that a call without ``llm_conn_id`` takes."""
    connection = {
        "conn_type": "pydanticai",
        "password": model_service.api_key,
        "host": model_service.base_url,
        "extra": {"model": "openai-chat:stand-in"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_PYDANTICAI_DEFAULT", json.dumps(connection))
    yield model_service
    # A process reads a connection once; the next test's model is elsewhere.
    PydanticAICaller().close()


@pytest.fixture
def records(records_service: RecordsService, monkeypatch: pytest.MonkeyPatch) -> RecordsService:
    """Give a service that keeps idempotency keys, as the connection ``bank``."""
    connection = {"conn_type": "http", "host": records_service.base_url, "password": records_service.token}
    monkeypatch.setenv("AIRFLOW_CONN_BANK", json.dumps(connection))
    return records_service


@pytest.fixture
def limit(airflow: Airflow) -> Iterator[None]:
    """Set the limit that pages name, as `aiflow limits set` does."""
    with closing(PostgresLimits.connect(airflow.ledger)) as limits:
        limits.set_limit(Limit("openai", rpm=500, tpm=200_000, concurrency=16))
        yield
        limits.remove_limit("openai")


@pytest.fixture
def erp(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a database of invoices, as the connection ``erp``."""
    dsn = postgres_server.fresh_database("erp")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA ap")
        connection.execute(
            "CREATE TABLE ap.invoice (id bigint GENERATED ALWAYS AS IDENTITY, number text, cents bigint)"
        )
    monkeypatch.setenv("AIRFLOW_CONN_ERP", dsn)
    return dsn


@pytest.fixture
def reports(object_store: ObjectStoreServer) -> None:
    """Make the bucket that pages write into."""
    object_store.bucket("reports")


def source_of(block: Block, mail: MailService) -> str:
    """Return a block with its servers replaced, and the list that the fixture looks for."""
    text = block.text.replace(MAIL, f'smtplib.SMTP("127.0.0.1", {mail.port}, timeout=30)')
    text = text.replace(PAYOUTS, RECORDS)
    return RETRIES.sub(lambda found: f"{found[0]}, retry_delay=0", text) + "\nseen = []\n"


def run(airflow: Airflow, source: str, conf: dict[str, Any]) -> Ran:
    return airflow.run(source, conf=conf, head="")


DAGS = [pytest.param(block, id=block.label) for block in all_blocks(kind="dag") if block.path != README]


@pytest.mark.parametrize("block", DAGS)
def test_a_pages_dag_runs(
    airflow: Airflow,
    block: Block,
    model: ModelService,
    mail_service: MailService,
    records: RecordsService,
    erp: str,
    limit: None,
    reports: None,
) -> None:
    ran = run(airflow, source_of(block, mail_service), {})
    assert {state for task in ran.states.values() for state in task} == {"success"}, ran.states


@pytest.fixture
def readme() -> Block:
    [block] = [block for block in blocks_of(README) if block.kind == "dag"]
    return block


@pytest.fixture
def conf(tmp_path: Path) -> dict[str, str]:
    contract = tmp_path / "contract.txt"
    contract.write_text("\f".join(f"Page {number}. The tenant pays for all damage." for number in range(1, 7)))
    return {"path": str(contract), "to": "ann@example.com"}


def test_the_readmes_dag_sends_one_mail_for_a_contract(
    airflow: Airflow, readme: Block, model: ModelService, mail_service: MailService, conf: dict[str, str]
) -> None:
    source = source_of(readme, mail_service)
    assert run(airflow, source, conf).states == {"review": ["success"]}
    assert len(model.requests()) == 6 + 1
    [mail] = mail_service.mails()
    assert mail["To"] == "ann@example.com"

    # Another run of the same contract asks the model anew and sends no second mail, whatever the verdict.
    assert run(airflow, source.replace("How risky", "How dangerous"), conf).states == {"review": ["success"]}
    assert len(model.requests()) == 2 * (6 + 1)
    # Another recipient is another request under the same key.
    assert run(airflow, source, conf | {"to": "bob@example.com"}).states == {"review": ["failed"]}
    assert len(mail_service.mails()) == 1


def test_the_readmes_dag_resumes_where_a_try_broke_off(
    airflow: Airflow, readme: Block, model: ModelService, mail_service: MailService, conf: dict[str, str]
) -> None:
    model.set_faults(Fault("cut", first=1, contains="Page 6"))
    ran = run(airflow, source_of(readme, mail_service), conf)
    assert ran.states == {"review": ["success"]}
    assert airflow.rows("select number, sign from aiflow.attempt where number = 2", ran)[-1] == (2, "retry")
    # Each page once, the verdict, and the page whose answer was cut.
    assert len(model.requests()) == 6 + 1 + 1
    assert len(mail_service.mails()) == 1


def test_the_readmes_dag_asks_where_nobody_knows_whether_the_mail_went_out(
    airflow: Airflow,
    readme: Block,
    model: ModelService,
    mail_service: MailService,
    conf: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__AIFLOW__RESCHEDULE_DELAY", "1")
    mail_service.set_faults(Fault("cut", first=1))
    asked: list[str] = []

    def answer() -> None:
        with closing(PostgresInbox.connect(airflow.ledger)) as inbox:
            entry = wait_for(lambda: next((one for one in inbox.waiting() if one.question), None), "a question", 60.0)
            assert entry.question is not None
            asked.append(entry.question.subject)
            assert inbox.resolve(entry.number, "happened", by="ada").counts

    person = threading.Thread(target=answer)
    person.start()
    ran = run(airflow, source_of(readme, mail_service), conf)
    person.join()
    assert ran.states == {"review": ["success"]}
    assert asked == [f'Did "mail" happen?  contract/{conf["path"]}']
    assert len(mail_service.mails()) == 1
    # Another run of the same contract sends nothing either.
    assert run(airflow, source_of(readme, mail_service), conf).states == {"review": ["success"]}
    assert len(mail_service.mails()) == 1
