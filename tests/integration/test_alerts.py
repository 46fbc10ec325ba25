"""Alerts over a real ledger, carried by Airflow's real SmtpNotifier to a real mail server: each once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.durable.effect import Intended
from airflow_aiflow.durable.execution import ExecutionState, Taken
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.stall import Leave, Quarantine, Requeue, StallKind
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import MailService
from airflow_aiflow.notifications import AiflowNotifier
from airflow_aiflow.notifications.alert import task_link
from airflow_aiflow.notifications.telling import GRACE, tell_doubts, tell_incidents
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_doubts import PostgresDoubts
from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
from tests.contract.ledger_world import (
    PostgresWorld,
    an_attempt,
    an_effect,
    an_execution,
    an_intent,
    start,
    take,
)

LINK = task_link("https://airflow.example.com")


@dataclass
class Ledger:
    """Hold the ledger as tasks, recovery and those who tell use it."""

    world: PostgresWorld
    recovery: PostgresRecovery
    doubts: PostgresDoubts


@pytest.fixture(scope="module")
def ledger(postgres_server: PostgresServer) -> Iterator[Ledger]:
    owner = postgres_server.fresh_database("alerts")
    upgrade(owner)
    dsn = postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))
    with (
        closing(PostgresWorld(dsn, owner)) as world,
        closing(PostgresRecovery.connect(dsn)) as recovery,
        closing(PostgresDoubts.connect(dsn)) as doubts,
    ):
        yield Ledger(world, recovery, doubts)


@pytest.fixture
def mail(mail_service: MailService, monkeypatch: pytest.MonkeyPatch) -> MailService:
    extra = {
        "disable_ssl": True,
        "disable_tls": True,
        "from_email": "aiflow@example.com",
        "retry_limit": 0,
        "timeout": 10,
    }
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail_service.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    return mail_service


def stalled(ledger: Ledger, decision: Leave | Requeue | Quarantine, **parts: Any) -> Taken:
    """Have an execution that recovery found stalled, and what it decided."""
    taken = start(ledger.world.ledger, **parts)
    stall = ledger.recovery.execution(execution_of(ledger, taken))
    assert stall is not None
    ledger.recovery.found(stall, decision)
    return taken


def execution_of(ledger: Ledger, taken: Taken) -> ExecutionId:
    [row] = ledger.world.behind.execute(
        "select dag_id, run_id, task_id, map_index from aiflow.execution where execution_id = %s",
        [taken.lease.execution_pk],
    ).fetchall()
    return an_execution(dag_id=row[0], run_id=row[1], task_id=row[2], map_index=row[3])


def test_one_mail_an_incident_however_often_it_is_found(ledger: Ledger, mail: MailService) -> None:
    why = "its lease has lapsed, and Airflow says running; its DAG is paused"
    stalled(ledger, Leave(why, 300.0, report=True, kind=StallKind.DEAD_WORKER), run_id="r1", task_id="extract")
    # What was brought home by itself is nobody's work.
    stalled(ledger, Requeue(StallKind.DEAD_WORKER, "its process is gone"), run_id="r2")
    notify = [SmtpNotifier(to="ops@example.com")]
    assert tell_incidents(ledger.recovery, notify, {}, link=LINK) == 1
    [sent] = mail.mails()
    assert sent["To"] == "ops@example.com"
    assert sent["Subject"] == "aiflow: not recovered: billing extract, run r1 (dead_worker)"
    body = sent.get_body(("html",))
    assert body is not None
    text = body.get_content()
    assert why in text
    assert 'href="https://airflow.example.com/dags/billing/runs/r1/tasks/extract"' in text
    for _ in range(2):
        assert tell_incidents(ledger.recovery, notify, {}, link=LINK) == 0
    assert len(mail.mails()) == 1


def test_words_of_ones_own_and_a_second_notifier(ledger: Ledger, mail: MailService) -> None:
    stalled(ledger, Quarantine(StallKind.HUNG, "3 attempts died in page"), run_id="r3", task_id="<b>")
    notify = [
        AiflowNotifier(
            SmtpNotifier(to="ops@example.com"),
            subject="{{ incident.decision }} {{ incident.task_id }}",
            text="{{ incident.why }}",
        ),
        SmtpNotifier(to="boss@example.com", html_content="call ops about {{ incident.dag_id }}"),
    ]
    assert tell_incidents(ledger.recovery, notify, {}) == 1
    mine, other = sorted(mail.mails(), key=lambda one: str(one["To"]), reverse=True)
    assert mine["Subject"] == "quarantine <b>"
    assert other["Subject"].startswith("aiflow: given up")
    for one, words in ((mine, "3 attempts died in page"), (other, "call ops about billing")):
        body = one.get_body(("html",))
        assert body is not None
        assert body.get_content().strip() == words


def test_a_mail_server_that_refuses_is_tried_again_at_the_next_pass(ledger: Ledger, mail: MailService) -> None:
    stalled(ledger, Quarantine(StallKind.EXHAUSTED, "all recoveries are used up"), run_id="r4")
    mail.set_faults(Fault("status", first=1))
    notify = [SmtpNotifier(to="ops@example.com")]
    assert tell_incidents(ledger.recovery, notify, {}) == 0
    assert tell_incidents(ledger.recovery, notify, {}) == 1
    assert tell_incidents(ledger.recovery, notify, {}) == 0
    assert len(mail.mails()) == 1


def doubted(ledger: Ledger, **parts: Any) -> tuple[Taken, int]:
    """Have an effect in doubt whose attempt still holds its lease, and its number."""
    taken = start(ledger.world.ledger)
    effect = an_effect(**parts)
    write = an_intent(effect)
    assert isinstance(ledger.world.ledger.intend(taken.lease, write), Intended)
    assert ledger.world.ledger.doubt(taken.lease, write.intent_id)
    record = ledger.world.ledger.effect(effect)
    assert record is not None
    return taken, record.number


def numbers(ledger: Ledger) -> list[int]:
    return [one.number for one in ledger.doubts.untold(grace=GRACE, limit=100)]


def test_a_doubt_is_told_once_nobody_is_at_work_on_it(ledger: Ledger, mail: MailService) -> None:
    taken, number = doubted(ledger, key="billing/4711")
    assert number not in numbers(ledger)  # its attempt may settle it
    assert ledger.world.ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    assert number not in numbers(ledger)  # its retry may
    ledger.world.pass_time(GRACE + 1)
    assert numbers(ledger) == [number]
    notify = [SmtpNotifier(to="ops@example.com")]
    assert tell_doubts(ledger.doubts, notify, {}, link=LINK) == 1
    [sent] = mail.mails()
    assert "in doubt" in sent["Subject"]
    body = sent.get_body(("html",))
    assert body is not None
    text = body.get_content()
    assert "billing/4711 happened" in text
    assert f"aiflow effects resolve {number} --happened" in text
    assert tell_doubts(ledger.doubts, notify, {}) == 0
    assert len(mail.mails()) == 1


def test_a_doubt_under_a_live_lease_or_decided_is_not_told(ledger: Ledger) -> None:
    taken, number = doubted(ledger)
    ledger.world.pass_time(GRACE + 100)
    assert number in numbers(ledger)
    # The next attempt is at work on it.
    execution = execution_of(ledger, taken)
    later = take(ledger.world.ledger, an_attempt(execution, 2))
    assert number not in numbers(ledger)
    assert ledger.world.ledger.finish(later.lease, ExecutionState.FAILED, result=None)
    ledger.world.pass_time(GRACE + 1)
    assert number in numbers(ledger)
    assert ledger.world.inbox.resolve(number, "happened", by="ada").counts
    assert number not in numbers(ledger)
