"""
Airflow's form for a person (a human-in-the-loop detail), as its REST API shows it.

A task instance has one form for its life, whose text never changes: a retry, a clear and a second question still show
the first one. So a form is read by the numbers in its options, and what is chosen in it means those and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.hooks.airflow_api import AsksAirflow, run_path

#: A number of the inbox inside an option, such as ``It happened (#1842)``.
NUMBER = re.compile(r"#(\d+)")

#: Input that says: the answer is in the inbox already, and this response only lets the task go on. From anybody else
#: it is harmless: the task looks into the inbox and asks again.
IN_INBOX = "aiflow_answered_in_inbox"

NOT_FOUND = 404
CONFLICT = 409


@dataclass(frozen=True, slots=True)
class AirflowForm:
    """
    Hold a form and what was answered.

    :param options: as shown.
    :param created_at: when the task instance first asked.
    :param chosen: the option that was chosen; ``None``: nobody has answered.
    :param by: who chose it.
    :param from_inbox: whether the response was ours, after an answer in the inbox.
    """

    subject: str
    options: tuple[str, ...]
    created_at: datetime
    chosen: str | None
    by: str
    from_inbox: bool
    #: The id of who chose it, which rights hang on; ``None``: Airflow does not say.
    user: str | None = None

    @property
    def numbers(self) -> frozenset[int]:
        """Give the numbers that the form is about."""
        return numbers_in(self.options)


def numbers_in(options: Iterable[str]) -> frozenset[int]:
    """
    Find the inbox's numbers in a form's options.

    :param options: as shown.
    """
    return frozenset(int(number) for option in options for number in NUMBER.findall(option))


def person(user: Mapping[str, Any] | None) -> str:
    """
    Name who answered: the id, which is what rights hang on, with the name where that says more.

    :param user: as Airflow gives it.
    """
    if not user:
        return "unknown"
    name, known_as = str(user.get("name") or ""), str(user.get("id") or "")
    if not known_as or not name or name == known_as:
        return known_as or name or "unknown"
    return f"{name} ({known_as})"


def person_id(user: Mapping[str, Any] | None) -> str | None:
    """
    Give the id of who answered, which ``assigned_users`` hold.

    :param user: as Airflow gives it.
    """
    return None if not user or user.get("id") is None else str(user["id"])


def task_path(execution: ExecutionId) -> str:
    """
    Give the path of an execution's task instance.

    :param execution: of a mapped task or not.
    """
    instances = f"{run_path(execution.dag_id, execution.run_id)}/taskInstances"
    return f"{instances}/{quote(execution.task_id, safe='')}/{execution.map_index}"


def read_form(api: AsksAirflow, execution: ExecutionId) -> AirflowForm | None:
    """
    Read the form of an execution's task instance.

    :param api: Airflow's.
    :param execution: which one.
    :return: ``None``: it has none, or the task instance is not there.
    :raises AirflowRefusedError: if the API refused.
    """
    try:
        found = api.request("GET", f"{task_path(execution)}/hitlDetails")
    except AirflowRefusedError as error:
        if error.status == NOT_FOUND:
            return None
        raise
    chosen = found.get("chosen_options") or []
    return AirflowForm(
        subject=str(found["subject"]),
        options=tuple(found["options"]),
        created_at=datetime.fromisoformat(found["created_at"]),
        chosen=str(chosen[0]) if found.get("response_received") and chosen else None,
        by=person(found.get("responded_by_user")),
        from_inbox=bool((found.get("params_input") or {}).get(IN_INBOX)),
        user=person_id(found.get("responded_by_user")),
    )


def respond(api: AsksAirflow, execution: ExecutionId, option: str) -> bool:
    """
    Let a waiting task go on after its answer has come into the inbox.

    :param api: Airflow's.
    :param execution: which one.
    :param option: of the form.
    :return: whether this response counts; else somebody has responded in the form.
    :raises AirflowRefusedError: if the API refused.
    """
    body = {"chosen_options": [option], "params_input": {IN_INBOX: True}}
    try:
        api.request("PATCH", f"{task_path(execution)}/hitlDetails", body=body)
    except AirflowRefusedError as error:
        if error.status == CONFLICT:
            return False
        raise
    return True
