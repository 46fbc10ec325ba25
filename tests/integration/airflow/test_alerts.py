"""The DAG of the page on alerts runs: what it finds and may not mend is told by mail."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.local.service import MailService
from airflow_aiflow.runtime.process import this_owner
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
from tests.airflow_api import PASSWORD, RecoveringStandIn, serving
from tests.contract.ledger_world import an_attempt, take
from tests.integration.airflow.conftest import Airflow
from tests.pages import DOCS, blocks_of


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecoveringStandIn]:
    """Give the Airflow that recovery looks at: one paused DAG, and a run of it."""
    stand_in = RecoveringStandIn(f"billing_{uuid4().hex}", "r1")
    stand_in.paused = True
    with serving(stand_in) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        api = {"conn_type": "http", "host": host, "port": int(port), "login": "admin", "password": PASSWORD}
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(api))
        yield stand_in


@pytest.fixture
def mail(mail_service: MailService, monkeypatch: pytest.MonkeyPatch) -> MailService:
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "a@example.com", "retry_limit": 0, "timeout": 10}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail_service.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    return mail_service


def stalled(airflow: Airflow, elsewhere: RecoveringStandIn) -> None:
    """Have a task whose process is gone under a live lease, and which Airflow takes for running."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    stamp = int(datetime.now(UTC).timestamp() * 1000)
    ti_id = UUID(int=(stamp << 80) | (7 << 76) | (2 << 62) | (uuid4().int & ((1 << 62) - 1)))
    elsewhere.put("pay", ti_id, "running")
    attempt = an_attempt(ExecutionId(elsewhere.dag_id, "r1", "pay"), ti_id=ti_id)
    owner = replace(this_owner(str(ti_id)), pid=gone.pid, start=1)
    with closing(PostgresLedger.connect(airflow.ledger)) as ledger:
        take(ledger, replace(attempt, owner=owner), ttl=3600.0)


def test_the_pages_dag_tells(airflow: Airflow, elsewhere: RecoveringStandIn, mail: MailService) -> None:
    stalled(airflow, elsewhere)
    block = next(block for block in blocks_of(DOCS / "how-to" / "alerts.md") if block.kind == "run")
    quick = block.text.replace("recovery_dag(notify=[", "recovery_dag(deferrable=False, poll_interval=0.2, notify=[")
    assert quick != block.text
    # Else dag.test() waits for seconds between two looks, and a run that finds nothing lasts an hour.
    poke = "find = dag.get_task('find')\nfind.mode, find.timeout = 'poke', 30.0"
    ran = airflow.run(f"{quick}\n{poke}\nseen = []\n", head="")
    assert ran.states == {"find": ["success"], "requeue": ["success"]}
    [sent] = mail.mails()
    assert sent["To"] == "ops@example.com"
    assert sent["Subject"] == f"aiflow: not recovered: {elsewhere.dag_id} pay, run r1 (dead_worker)"
    assert elsewhere.cleared == []
    with closing(PostgresRecovery.connect(airflow.ledger)) as recovery:
        assert [one for one in recovery.unalerted() if one.execution.dag_id == elsewhere.dag_id] == []
