"""
Send one mail through a connection of type ``smtp``.

By `smtplib` and once: the hook of the SMTP provider sends again when a reply is lost, and then nobody knows how many
mails went out. What a server surely refused is told apart from a lost reply, which stays unknown.
"""

from __future__ import annotations

import contextlib
import smtplib
import ssl
from datetime import timedelta
from email.message import EmailMessage
from typing import TYPE_CHECKING

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.exceptions import EffectNotAppliedError
from airflow_aiflow.runtime.requests import EffectContext

if TYPE_CHECKING:
    from airflow.sdk import Connection

CONNECTION = "smtp_default"
#: The longest time for which S3 signs a link.
LINK_LIFETIME = timedelta(days=7)
#: Ports that mail servers take from clients, with TLS from the first byte and without.
TLS_PORT, PORT = 465, 587

#: Answers by which a server says that it did not take the mail.
_REFUSALS = (
    smtplib.SMTPSenderRefused,
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPDataError,
    smtplib.SMTPNotSupportedError,
)


def send_report(ctx: EffectContext, recipient: str, letter: str, report: ArtifactRef) -> str:
    """
    Send the mail about a report.

    :param ctx: its idempotency key becomes the ``Message-ID``, by which a duplicate can be told.
    :param recipient: whom.
    :param letter: its first line is the subject, the rest is what it says; a link to the report is added.
    :param report: the report.
    :return: the ``Message-ID``.
    :raises EffectNotAppliedError: if the server refused the mail.
    """
    try:
        mail, client = _prepared(ctx, recipient, letter, report)
    except Exception as error:
        # Whatever goes wrong before the mail is handed over, surely nothing was sent.
        raise EffectNotAppliedError(f"the mail to {recipient} could not be handed over: {error}") from error
    try:
        client.send_message(mail)
    except _REFUSALS as error:
        raise EffectNotAppliedError(f"the mail server refused the mail to {recipient}: {error}") from error
    finally:
        # The mail is decided by now; a server that hangs up on the good-bye changes nothing.
        with contextlib.suppress(smtplib.SMTPException, OSError):
            client.quit()
    return str(mail["Message-ID"])


def _prepared(
    ctx: EffectContext, recipient: str, letter: str, report: ArtifactRef
) -> tuple[EmailMessage, smtplib.SMTP]:
    """Write the mail, and open the connection that it goes through."""
    from airflow.sdk import Connection

    connection = Connection.get(CONNECTION)
    subject, _, text = letter.partition("\n")
    mail = EmailMessage()
    mail["From"] = str(connection.extra_dejson.get("from_email") or "aiflow@localhost")
    mail["To"] = recipient
    mail["Subject"] = subject
    mail["Message-ID"] = f"<{ctx.idempotency_key}@aiflow.invalid>"
    mail.set_content(f"{text.strip()}\n\nThe report: {report.url(LINK_LIFETIME)}\n")
    return mail, _client(connection, ctx.deadline)


def _client(connection: Connection, timeout: float) -> smtplib.SMTP:
    extra = connection.extra_dejson
    host = connection.host or "localhost"
    if extra.get("disable_ssl"):
        client = smtplib.SMTP(host, connection.port or PORT, timeout=timeout)
        if not extra.get("disable_tls"):
            client.starttls(context=ssl.create_default_context())
    else:
        context = ssl.create_default_context()
        client = smtplib.SMTP_SSL(host, connection.port or TLS_PORT, timeout=timeout, context=context)
    if connection.login and connection.password:
        client.login(connection.login, connection.password)
    return client
