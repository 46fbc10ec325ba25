"""Alerts: their words, how any notifier carries them, and that each is told once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.stall import Incident, StallKind
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.notifications import AiflowNotifier, Alert
from airflow_aiflow.notifications.alert import LONGEST_SUBJECT, of_incident, task_link
from airflow_aiflow.notifications.telling import tell_incidents

EXECUTION = ExecutionId("invoices", "manual__2026-11-29", "book", 3)


def an_incident(
    number: int = 7, why: str = "its lease has lapsed, and Airflow says running", **fields: Any
) -> Incident:
    execution = fields.pop("execution", EXECUTION)
    decision = fields.pop("decision", "requeue")
    return Incident(number, execution, 4, StallKind.DEAD_WORKER, decision, why, 31.4, **fields)


class Chat(BaseNotifier):
    """Post a text, as chat notifiers do: with a text of their own where none is given."""

    template_fields = ("text", "channel")

    def __init__(self, text: str = "This is a default message", channel: str = "general") -> None:
        super().__init__()
        self.text, self.channel = text, channel
        self.posted: list[tuple[str, str]] = []

    def notify(self, context: Any) -> None:
        """Post."""
        self.posted.append((self.channel, self.text))


class Broken(BaseNotifier):
    """Fail."""

    def notify(self, context: Any) -> None:
        """Fail."""
        raise OSError("no route to password=hush-hush")


class Ledger:
    """Keep incidents and who was told."""

    def __init__(self, *incidents: Incident) -> None:
        self.incidents = {one.number: one for one in incidents}

    def unalerted(self, limit: int = 100) -> Sequence[Incident]:
        """List them."""
        return list(self.incidents.values())[:limit]

    def alerted(self, numbers: Iterable[int]) -> None:
        """Take them out."""
        for number in numbers:
            del self.incidents[number]


def test_an_alert_says_what_became_of_which_task() -> None:
    alert = of_incident(an_incident(decision="quarantine"), task_link("https://airflow.example.com/ops/"))
    assert alert.subject == "aiflow: given up: invoices book[3], run manual__2026-11-29 (dead_worker)"
    assert "Found: its lease has lapsed, and Airflow says running" in alert.text
    assert "aiflow runs requeue invoices/manual__2026-11-29 --task book[3] --force" in alert.text
    assert alert.link == "https://airflow.example.com/ops/dags/invoices/runs/manual__2026-11-29/tasks/book/mapped/3"
    assert alert.link in alert.text
    assert f'<a href="{alert.link}">' in alert.html


def test_other_peoples_words_stay_words() -> None:
    evil = ExecutionId("d", "run\r\nBcc: x@example.com", "t")
    alert = of_incident(an_incident(why="<script>{{ 7 * 7 }}</script>", execution=evil))
    assert "\n" not in alert.subject
    assert "\r" not in alert.subject
    assert "<script>" not in alert.html
    chat = Chat()
    ledger = Ledger(an_incident(why="{{ 7 * 7 }}"))
    assert tell_incidents(ledger, [chat], {}) == 1
    [(_, text)] = chat.posted
    assert "{{ 7 * 7 }}" in text
    long = of_incident(an_incident(execution=ExecutionId("d" * 250, "r" * 250, "t")))
    assert len(long.subject) == LONGEST_SUBJECT


def test_any_notifier_carries_alerts_each_its_own() -> None:
    chat = Chat(channel="ops")
    ledger = Ledger(an_incident(1, "first"), an_incident(2, "second"))
    assert tell_incidents(ledger, [chat], {}) == 2
    assert [channel for channel, _ in chat.posted] == ["ops", "ops"]
    assert ["first" in chat.posted[0][1], "second" in chat.posted[1][1]] == [True, True]
    assert tell_incidents(ledger, [chat], {}) == 0
    assert chat.text == "This is a default message"


def test_what_the_author_wrote_stays() -> None:
    chat = Chat("{{ incident.kind }} in {{ incident.dag_id }}")
    worded = Chat()
    tell_incidents(Ledger(an_incident()), [chat, AiflowNotifier(worded, text="look at {{ incident.task_id }}")], {})
    assert chat.posted == [("general", "dead_worker in invoices")]
    assert worded.posted == [("general", "look at book")]


def test_a_subclass_sends_its_own_way(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[tuple[Alert, str, str]] = []

    class Pager(AiflowNotifier):
        def send(self, alert: Alert, subject: str, text: str, context: Any) -> None:
            sent.append((alert, subject, text))

    tell_incidents(Ledger(an_incident(why="{{ 7 * 7 }}")), [Pager(subject="[{{ incident.number }}]")], {})
    [(alert, subject, text)] = sent
    assert (alert.number, subject) == (7, "[7]")
    assert "{{ 7 * 7 }}" in text
    with pytest.raises(AiflowConfigError, match="recovery_dag"):
        Pager()({})


def test_by_itself_it_writes_to_the_log(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert tell_incidents(Ledger(an_incident()), [AiflowNotifier()], {}) == 1
    assert "aiflow: recovered: invoices book[3]" in caplog.text + capfd.readouterr().out


def test_a_notifier_that_fails_keeps_nobody_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    chat, ledger = Chat(), Ledger(an_incident())
    assert tell_incidents(ledger, [Broken(), chat], {}) == 1
    assert len(chat.posted) == 1
    assert ledger.incidents == {}


def test_where_nobody_could_be_told_the_next_pass_tries_again() -> None:
    ledger = Ledger(an_incident())
    assert tell_incidents(ledger, [Broken()], {}) == 0
    assert list(ledger.incidents) == [7]
    assert tell_incidents(ledger, [], {}) == 0
    assert list(ledger.incidents) == [7]
