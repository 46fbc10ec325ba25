"""The matrix's kinds ``once`` and ``defers``: an operator of somebody else's, its work the act of one effect."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import TaskDeferred

from airflow_aiflow import once
from airflow_aiflow.exceptions import AttemptParked
from airflow_aiflow.runtime.flow import Flow
from tests.crash import child, kinds


class SendOperator(BaseOperator):
    """
    Send outside, as an operator that knows nothing of us.

    :param to: whom.
    """

    template_fields = ("to",)

    def __init__(self, *, to: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.to = to

    def execute(self, context: Any) -> str:
        """Send."""
        child.seen("applied", f"- {self.to}")
        return kinds.sent_to(self.to)


class DeferringOperator(SendOperator):
    """Send, and wait for the answer in the triggerer."""

    def execute(self, context: Any) -> str:
        """Send, and leave."""
        child.seen("applied", f"- {self.to}")
        raise TaskDeferred(trigger=object(), method_name="answered")  # nobody looks at it

    def answered(self, context: Any) -> str:
        """Be back."""
        return kinds.sent_to(self.to)


#: Its own options say nothing: what follows a doubt is the author's word, here "hold".
Once = once(SendOperator, key="one", effect_name="send", on_in_doubt="hold")

Deferring = once(DeferringOperator, key="one", effect_name="send", on_in_doubt="hold")


def unit(flow: Flow) -> str:
    """Do the operator's work once, as its ``execute`` does when Airflow calls it."""
    operator: Any = Once(task_id="pipeline", to="a@example.com")
    context = {"ti": SimpleNamespace(xcom_push=lambda key, value: None)}
    go_on = partial(SendOperator.execute, operator, context)
    sent: str = operator._carried_out(flow, context, "execute", go_on)
    return sent


def leaving_unit(flow: Flow) -> str:
    """Do it in two processes of one attempt, as Airflow calls them: the second once the trigger has fired."""
    operator: Any = Deferring(task_id="pipeline", to="a@example.com")
    context = {"ti": SimpleNamespace(xcom_push=lambda key, value: None)}
    attempt = str(flow._session.attempt.counters.ti_id)
    method = "answered" if attempt in child.outside_lines("deferred") else "execute"
    try:
        sent: str = operator._carried_out(
            flow, context, method, partial(getattr(DeferringOperator, method), operator, context)
        )
    except TaskDeferred:
        child.seen("deferred", attempt)  # Airflow has heard of it
        raise AttemptParked(0.1, "the triggerer waits") from None
    return sent
