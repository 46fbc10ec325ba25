"""The SMTP sink: each accepted mail is a file, also one whose sender never learnt it."""

from __future__ import annotations

import os
import signal
import smtplib
from email.message import EmailMessage

import pytest

from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import MailService


def send(service: MailService, subject: str = "Report", timeout: float = 10) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.com", "b@example.com", subject
    message["Message-ID"] = "<af_1@example.com>"
    message.set_content("Zwölf Verträge geprüft.")
    with smtplib.SMTP("127.0.0.1", service.port, timeout=timeout) as client:
        client.send_message(message)


def subjects(service: MailService) -> list[str]:
    return [str(mail["Subject"]) for mail in service.mails()]


def test_mails_are_kept_in_order(mail_service: MailService) -> None:
    send(mail_service, "First")
    send(mail_service, "Second")
    assert subjects(mail_service) == ["First", "Second"]
    (first, _) = mail_service.mails()
    assert first["X-Envelope-To"] == "b@example.com"
    assert first["Message-ID"] == "<af_1@example.com>"
    assert first.get_content().strip() == "Zwölf Verträge geprüft."


def test_a_cut_after_acceptance_keeps_the_mail(mail_service: MailService) -> None:
    mail_service.set_faults(Fault("cut", first=1))
    with pytest.raises(smtplib.SMTPServerDisconnected):
        send(mail_service)
    assert subjects(mail_service) == ["Report"]
    send(mail_service, "Again")
    assert subjects(mail_service) == ["Report", "Again"]


def test_a_cut_before_acceptance_keeps_nothing(mail_service: MailService) -> None:
    mail_service.set_faults(Fault("cut", applied=False))
    with pytest.raises(smtplib.SMTPServerDisconnected):
        send(mail_service)
    assert mail_service.mails() == []


def test_a_refusal_keeps_nothing(mail_service: MailService) -> None:
    mail_service.set_faults(Fault("status"))
    with pytest.raises(smtplib.SMTPDataError):
        send(mail_service)
    assert mail_service.mails() == []


def test_silence_keeps_the_mail(mail_service: MailService) -> None:
    mail_service.set_faults(Fault("silent"))
    with pytest.raises(smtplib.SMTPServerDisconnected, match="timed out"):
        send(mail_service, timeout=0.5)
    assert subjects(mail_service) == ["Report"]


def test_mails_survive_a_kill(mail_service: MailService) -> None:
    send(mail_service)
    os.kill(mail_service.pid, signal.SIGKILL)
    mail_service.stop()
    mail_service.start()
    assert subjects(mail_service) == ["Report"]
