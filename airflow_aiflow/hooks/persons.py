"""
What makes an operator of ours go on after a person's answer: a base class for every task that may ask.

A DAG file imports it, so nothing else is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The method that Airflow calls after the answer.
METHOD = "answered"


class AsksPersons:
    """Be the first base of an operator whose attempt may ask a person."""

    #: Whether this task instance's form was answered, but not what the task asks: a task instance has one form.
    form_is_used = False

    def answered(self, context: Context, event: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        """
        Take the answer, and run once more: the same attempt goes on, and its body replays.

        :param context: Airflow's.
        :param event: the response, or that its time is over.
        :param kwargs: what the options of the form meant.
        """
        from airflow_aiflow.hooks.asking import receive

        if event is not None:
            self.form_is_used = receive(event, kwargs.get("choices"))
        return self.execute(context)  # type: ignore[attr-defined]
