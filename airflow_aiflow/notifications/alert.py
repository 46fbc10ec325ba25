"""
What one alert says: the words of an incident or of a doubt, ready for a subject, a text and a page.

Ids and step names are other people's words. They are values of the templates, never part of them, and are escaped in
HTML: whoever may name a run must not be able to write a template or a link into somebody's mail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import OWN_KEY, UNMAPPED, ExecutionId
from airflow_aiflow.durable.stall import KINDS, Incident, StallKind

#: The kind of an alert about an effect whose outcome nobody knows.
DOUBT = "doubt"

#: What a person reads first, by the decision that recovery took.
_HEADS: Mapping[str, str] = {
    "leave": "not recovered",
    "requeue": "recovered",
    "quarantine": "given up",
    "settle": "settled",
}

#: Characters of a subject: mail programs show fewer, and a step's name may be long.
LONGEST_SUBJECT = 200


@dataclass(frozen=True, slots=True)
class Alert:
    """
    Hold what is told about one incident, or one doubt. In a template it is called ``incident``.

    :param number: of the incident; of a doubt, the one by which `aiflow effects resolve` knows it.
    :param kind: a word of ``StallKind``, or ``doubt``.
    :param execution: which task of which run.
    :param decision: ``leave``, ``requeue``, ``quarantine`` or ``settle``; ``ask`` of a doubt.
    :param why: what was found, in one sentence.
    :param advice: what a person can do; empty: nothing has to be done.
    :param link: to the task in Airflow; empty where nothing says where Airflow's pages are.
    :param detected_after: seconds from the stall to its find; ``None`` of a doubt.
    """

    number: int
    kind: str
    execution: ExecutionId
    decision: str
    why: str
    advice: str = ""
    link: str = ""
    detected_after: float | None = None

    @property
    def dag_id(self) -> str:
        """Give the DAG."""
        return self.execution.dag_id

    @property
    def run_id(self) -> str:
        """Give the run."""
        return self.execution.run_id

    @property
    def task_id(self) -> str:
        """Give the task."""
        return self.execution.task_id

    @property
    def map_index(self) -> int:
        """Give the map index, -1 where the task is not mapped."""
        return self.execution.map_index

    @property
    def subject(self) -> str:
        """Give one line: what became of which task."""
        head = "in doubt" if self.kind == DOUBT else _HEADS.get(self.decision, self.decision)
        mapped = "" if self.map_index == UNMAPPED else f"[{self.map_index}]"
        line = f"aiflow: {head}: {self.dag_id} {self.task_id}{mapped}, run {self.run_id} ({self.kind})"
        return " ".join(line.split())[:LONGEST_SUBJECT]

    @property
    def text(self) -> str:
        """Give the message in plain text."""
        return "\n".join(f"{name}: {value}" for name, value in self._lines())

    @property
    def html(self) -> str:
        """Give the message as HTML."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{_linked(value) if name == 'Look' else escape(value)}</td></tr>"
            for name, value in self._lines()
        )
        return f"<p>{escape(self.subject)}</p><table>{rows}</table>"

    def _lines(self) -> list[tuple[str, str]]:
        lines = [("Task", str(self.execution)), ("Found", self.why)]
        if self.kind in set(StallKind):
            lines.append(("Sign", KINDS[StallKind(self.kind)].sign))
        if self.detected_after is not None:
            lines.append(("Seen after", f"{self.detected_after:.0f} s"))
        if self.kind != DOUBT:
            lines.append(("Decision", self.decision))
        lines += [(name, value) for name, value in (("Do", self.advice), ("Look", self.link)) if value]
        lines.append(("Number", f"#{self.number}"))
        return lines


def _linked(address: str) -> str:
    return f'<a href="{escape(address, quote=True)}">{escape(address)}</a>'


def of_incident(incident: Incident, link: Callable[[ExecutionId], str] = lambda execution: "") -> Alert:
    """
    Make the alert about an incident.

    :param incident: as the ledger keeps it.
    :param link: gives a task's address in Airflow.
    """
    return Alert(
        incident.number,
        incident.kind.value,
        incident.execution,
        incident.decision,
        incident.why,
        _advice(incident),
        link(incident.execution),
        incident.detected_after,
    )


def of_doubt(effect: EffectRecord, link: Callable[[ExecutionId], str] = lambda execution: "") -> Alert:
    """
    Make the alert about an effect in doubt.

    :param effect: as the ledger keeps it.
    :param link: gives a task's address in Airflow.
    """
    key = "" if effect.effect.key == OWN_KEY else f" {effect.effect.key}"
    return Alert(
        effect.number,
        DOUBT,
        effect.execution,
        "ask",
        f"nobody knows whether {effect.effect.name}{key} happened: begun {effect.intended_at:%Y-%m-%d %H:%M:%S} UTC by "
        f"attempt {effect.attempt_number} on {effect.owner.hostname}, no outcome. It is not called again until a "
        "person decides",
        f"look at the target; then `aiflow effects resolve {effect.number} --happened`, or --did-not-happen",
        link(effect.execution),
    )


def _advice(incident: Incident) -> str:
    run = f"{incident.execution.dag_id}/{incident.execution.run_id}"
    task = f"--task {_name(incident.execution)}"
    match incident.decision:
        case "quarantine":
            return f"mend the cause; then `aiflow runs requeue {run} {task} --force`"
        case "leave":
            return f"look at it; `aiflow runs requeue {run} {task}` recovers it where nothing forbids it"
        case _:
            return ""


def _name(execution: ExecutionId) -> str:
    return execution.task_id if execution.map_index == UNMAPPED else f"{execution.task_id}[{execution.map_index}]"


def task_link(base_url: str) -> Callable[[ExecutionId], str]:
    """
    Say how a task's page in Airflow is addressed.

    :param base_url: of Airflow's API server; empty: there are no links.
    """
    base = base_url.rstrip("/")

    def link(execution: ExecutionId) -> str:
        if not base:
            return ""
        words = (execution.dag_id, execution.run_id, execution.task_id)
        dag, run, task = (quote(word, safe="") for word in words)
        mapped = "" if execution.map_index == UNMAPPED else f"/mapped/{execution.map_index}"
        return f"{base}/dags/{dag}/runs/{run}/tasks/{task}{mapped}"

    return link
