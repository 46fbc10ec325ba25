"""
``AiflowNotifier``: one of Airflow's notifiers, given the words of an incident.

Any notifier can carry an alert. Fields of it that its author left at their defaults and that hold a message are filled
with the alert's; what was given stays. Filled in is a template that names the alert, never the alert's text: the text
holds ids and names of other people, and a notifier renders its fields.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.notifications.alert import Alert

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The name of the alert in a context, and so in a template.
INCIDENT = "incident"

_SUBJECT, _TEXT, _HTML = "{{ incident.subject }}", "{{ incident.text }}", "{{ incident.html }}"

#: What a field holds, by the names that Airflow's providers give it: SMTP, Slack, Discord, Opsgenie, Telegram, others.
_FIELDS: Mapping[str, str] = {
    "subject": _SUBJECT,
    "title": _SUBJECT,
    "summary": _SUBJECT,
    "html_content": _HTML,
    "text": _TEXT,
    "message": _TEXT,
    "msg": _TEXT,
    "body": _TEXT,
    "content": _TEXT,
}


class AiflowNotifier(BaseNotifier):
    """
    Tell of an incident.

    Give it another notifier, or write a subclass with its own ``send``. By itself it writes to the task's log.

    :param notifier: who carries the message, such as ``SmtpNotifier(to="ops@example.com")``.
    :param subject: a template of one line, where it shall not be the alert's own; ``incident`` is the alert.
    :param text: a template of the message, where it shall not be the alert's own.
    """

    # Rendered by whoever carries the message, once: a text that was rendered must not be rendered again.
    template_fields = ()

    def __init__(
        self,
        notifier: BaseNotifier | None = None,
        *,
        subject: str | None = None,
        text: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.notifier = notifier
        self.subject = subject
        self.text = text

    def notify(self, context: Context) -> None:
        """
        Tell of the incident in the context.

        :param context: Airflow's, with ``incident``.
        :raises AiflowConfigError: if it holds no incident.
        """
        alert = _alert_in(context)
        if self.notifier is not None:
            self._filled(self.notifier)(context)
            return
        subject = self.render_template(self.subject or _SUBJECT, context)
        self.send(alert, str(subject), str(self.render_template(self.text or _TEXT, context)), context)

    async def async_notify(self, context: Context) -> None:
        """
        Do the same without blocking the event loop.

        :param context: Airflow's, with ``incident``.
        """
        import asyncio

        await asyncio.to_thread(self.notify, context)

    def send(self, alert: Alert, subject: str, text: str, context: Context) -> None:
        """
        Carry the message; subclasses do it their way.

        :param alert: what it is about.
        :param subject: one line.
        :param text: the message.
        :param context: Airflow's.
        """
        self.log.warning("%s\n%s", subject, text)

    def _filled(self, notifier: BaseNotifier) -> BaseNotifier:
        """Give a copy with the message in it: a notifier renders its fields in place, and the next alert needs them."""
        ready = copy.copy(notifier)
        own = {_SUBJECT: self.subject, _TEXT: self.text, _HTML: self.text}
        for name, template in _FIELDS.items():
            if name in ready.template_fields and _left_open(ready, name):
                setattr(ready, name, own[template] or template)
        return ready


def as_alerts(notifier: BaseNotifier) -> AiflowNotifier:
    """
    Make any notifier carry alerts.

    :param notifier: one of Airflow's, or ours.
    """
    return notifier if isinstance(notifier, AiflowNotifier) else AiflowNotifier(notifier)


def _alert_in(context: Context) -> Alert:
    alert = context.get(INCIDENT)
    if not isinstance(alert, Alert):
        raise AiflowConfigError(
            "AiflowNotifier tells of incidents, and this context holds none: give it to recovery_dag(notify=[...])"
        )
    return alert


def _left_open(notifier: BaseNotifier, name: str) -> bool:
    """Say whether a field holds nothing, or what its class puts there where nobody says otherwise."""
    value = getattr(notifier, name, None)
    if value is None or value == "":
        return True
    parameter = inspect.signature(type(notifier).__init__).parameters.get(name)
    return parameter is not None and parameter.default is not parameter.empty and bool(parameter.default == value)
