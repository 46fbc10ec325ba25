"""The DAG of the document review: its body in memory, its mail and its record at real servers that misbehave."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_aiflow.demo.home import dag_file
from airflow_aiflow.demo.kill import MOST_KILLS
from airflow_aiflow.demo.pages import PAGE
from airflow_aiflow.exceptions import AttemptAsks, EffectNotAppliedError
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.local import stack_connections
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import MailService, RecordsService
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask, ScriptedModels

PAGES, DOCUMENTS = 7, 3


class PowerCut(Exception):
    """What stands for a kill here; real ones are in tests/airflow."""


@pytest.fixture(scope="module")
def review_dag() -> ModuleType:
    """Give the DAG file, imported as Airflow does it: by its path."""
    spec = importlib.util.spec_from_file_location("document_review_of_tests", dag_file())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give three documents with seven pages, and a file that is none."""
    folder = tmp_path / "contracts"
    folder.mkdir()
    for name, pages in (("a.txt", 1), ("b.md", 4), ("c.txt", 2)):
        paragraphs = (f"{name} paragraph {number} " + "word " * (PAGE * 4 // 5 // 5) for number in range(pages))
        (folder / name).write_text("\n\n".join(paragraphs))
    (folder / "empty.txt").touch()
    return folder


@pytest.fixture
def servers(
    mail_service: MailService, records_service: RecordsService, monkeypatch: pytest.MonkeyPatch
) -> tuple[MailService, RecordsService]:
    """Give a mail server and a record service, and the connections to them."""
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(stack_connections.mail(mail_service)))
    monkeypatch.setenv("AIRFLOW_CONN_RECORDS", json.dumps(stack_connections.records(records_service)))
    return mail_service, records_service


@pytest.fixture
def body(review_dag: ModuleType, folder: Path) -> Callable[..., Callable[[Flow], dict[str, Any]]]:
    """Give what makes the task's body with its parameters."""
    dag = review_dag.document_review()
    task = dag.task_dict["review"].python_callable

    def make(**changes: Any) -> Callable[[Flow], dict[str, Any]]:
        given = {**dag.params.dump(), "folder": str(folder), **changes}
        return lambda flow: task(params=given)

    return make


def answering(verdict: type, fail_at: int | None = None) -> ScriptedModels:
    """Make a model that answers, and fails once at a call's number."""
    calls = 0

    def answer(request: LlmRequest) -> Any:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise PowerCut
        if request.output_type is str:
            return f"summary of {request.prompt.splitlines()[2][:20]}"
        return verdict(title="T", risk=4, reasons=["r"])

    return ScriptedModels(answer)


def test_the_dag_is_what_the_demo_relies_on(review_dag: ModuleType) -> None:
    dag = review_dag.document_review()
    assert (dag.dag_id, list(dag.task_dict)) == ("document_review", ["review"])
    task = dag.task_dict["review"]
    assert task.retries >= MOST_KILLS
    assert task.retry_delay == timedelta(seconds=2)
    assert set(dag.params) == {"folder", "limit", "model", "recipient"}
    assert dag.params.dump() == {
        "folder": None, "limit": None, "model": "pydanticai_default", "recipient": "legal@example.com",
    }  # fmt: skip


def test_the_dag_is_short() -> None:
    assert len(dag_file().read_text().splitlines()) < 60


@pytest.mark.parametrize("fail_at", [1, PAGES, PAGES + 1, PAGES + DOCUMENTS])
def test_a_run_that_broke_off_asks_only_what_it_was_not_answered(
    review_dag: ModuleType,
    body: Callable[..., Callable[[Flow], Any]],
    servers: tuple[MailService, RecordsService],
    fail_at: int,
) -> None:
    mail, records = servers
    task = DurableTask(models=answering(review_dag.Verdict, fail_at))
    with pytest.raises(PowerCut):
        task.run(body())
    assert (mail.mails(), records.records()) == ([], [])
    result = task.run(body())
    assert (result["pages"], result["documents"]) == (PAGES, DOCUMENTS)
    assert len(task.models.requests) == PAGES + DOCUMENTS + 1  # type: ignore[attr-defined]
    assert [str(each["To"]) for each in mail.mails()] == ["legal@example.com"]
    assert [record["fields"]["pages"] for record in records.records()] == [PAGES]


def test_the_report_and_the_mail_say_what_was_found(
    review_dag: ModuleType, body: Callable[..., Callable[[Flow], Any]], servers: tuple[MailService, RecordsService]
) -> None:
    mail, records = servers
    task = DurableTask(models=answering(review_dag.Verdict))
    result = task.run(body(recipient="ada@example.com"))
    page = task.store.open_file(bytes.fromhex(result["report"].sha256)).read().decode()
    table = task.store.open_file(bytes.fromhex(result["table"].sha256)).read().decode()
    assert (result["report"].name, result["table"].name) == ("report.html", "report.csv")
    for text in (page, table):
        assert "b.md" in text
        assert "empty.txt" in text
        assert "is empty" in text
    [sent] = mail.mails()
    assert (sent["To"], sent["Subject"]) == ("ada@example.com", "3 of 3 documents carry a high risk")
    assert sent["Message-ID"].startswith("<af_")
    assert "The report: data:text/html" in sent.get_content()
    [record] = records.records()
    assert record["fields"]["documents"] == DOCUMENTS
    assert record["key"].startswith("af_")


def test_the_same_folder_again_sends_nothing_to_the_same_person(
    review_dag: ModuleType, body: Callable[..., Callable[[Flow], Any]], servers: tuple[MailService, RecordsService]
) -> None:
    mail, records = servers
    first = DurableTask(models=answering(review_dag.Verdict), run_id="one")
    first.run(body())
    again = DurableTask(models=answering(review_dag.Verdict), run_id="two", ledger=first.ledger, store=first.store)
    again.run(body())
    assert (len(mail.mails()), len(records.records())) == (1, 1)
    other = DurableTask(models=answering(review_dag.Verdict), run_id="three", ledger=first.ledger, store=first.store)
    other.run(body(recipient="ada@example.com"))
    assert [str(each["To"]) for each in mail.mails()] == ["legal@example.com", "ada@example.com"]
    assert len(records.records()) == 1


def test_a_mail_that_was_surely_refused_is_sent_again(
    review_dag: ModuleType, body: Callable[..., Callable[[Flow], Any]], servers: tuple[MailService, RecordsService]
) -> None:
    mail, _ = servers
    mail.set_faults(Fault("status", first=2))
    DurableTask(models=answering(review_dag.Verdict)).run(body())
    assert len(mail.mails()) == 1


def test_a_mail_that_is_always_refused_is_no_doubt(
    review_dag: ModuleType, body: Callable[..., Callable[[Flow], Any]], servers: tuple[MailService, RecordsService]
) -> None:
    mail, _ = servers
    mail.set_faults(Fault("status"))
    task = DurableTask(models=answering(review_dag.Verdict))
    with pytest.raises(EffectNotAppliedError, match=r"refused the mail to legal@example.com"):
        task.run(body())
    mail.set_faults()
    task.run(body())
    assert len(mail.mails()) == 1


def test_a_mail_without_a_reply_waits_for_a_person(
    review_dag: ModuleType, body: Callable[..., Callable[[Flow], Any]], servers: tuple[MailService, RecordsService]
) -> None:
    mail, records = servers
    mail.set_faults(Fault("cut", first=1))
    task = DurableTask(models=answering(review_dag.Verdict))
    for _ in range(2):
        with pytest.raises(AttemptAsks, match="is in doubt"):
            task.run(body())
    assert (len(mail.mails()), len(records.records())) == (1, 0)
    task.answer("It happened")
    task.same_again()
    task.run(body())
    assert (len(mail.mails()), len(records.records())) == (1, 1)


def test_a_record_without_a_reply_is_asked_for_again_by_its_key(
    review_dag: ModuleType, body: Callable[..., Callable[[Flow], Any]], servers: tuple[MailService, RecordsService]
) -> None:
    mail, records = servers
    records.set_faults(Fault("cut", first=1))
    DurableTask(models=answering(review_dag.Verdict)).run(body())
    assert (len(mail.mails()), len(records.records()), len(records.requests())) == (1, 1, 2)


@pytest.mark.parametrize("variable", ["AIRFLOW_CONN_SMTP_DEFAULT", "AIRFLOW_CONN_RECORDS"])
def test_a_missing_connection_is_no_doubt(
    review_dag: ModuleType,
    body: Callable[..., Callable[[Flow], Any]],
    servers: tuple[MailService, RecordsService],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    mail, records = servers
    task = DurableTask(models=answering(review_dag.Verdict))
    with monkeypatch.context() as without:
        without.delenv(variable)
        with pytest.raises(EffectNotAppliedError, match="isn't defined"):
            task.run(body())
    task.run(body())
    assert (len(mail.mails()), len(records.records())) == (1, 1)


def test_a_mail_server_that_is_away_is_no_doubt(
    review_dag: ModuleType, body: Callable[..., Callable[[Flow], Any]], servers: tuple[MailService, RecordsService]
) -> None:
    mail, _ = servers
    task = DurableTask(models=answering(review_dag.Verdict))
    mail.stop()
    with pytest.raises(EffectNotAppliedError, match="could not be handed over"):
        task.run(body())
    mail.start()
    task.run(body())
    assert len(mail.mails()) == 1
