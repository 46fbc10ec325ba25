"""The matrix's kind ``once``: an Airflow operator of somebody else's, its work the act of one effect."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from airflow.sdk import BaseOperator

from airflow_aiflow import once
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


#: Its own options say nothing: what follows a doubt is the author's word, here "hold".
Once = once(SendOperator, key="one", effect_name="send", on_in_doubt="hold")


def unit(flow: Flow) -> str:
    """Do the operator's work once, as its ``execute`` does when Airflow calls it."""
    operator: Any = Once(task_id="pipeline", to="a@example.com")
    context = {"ti": SimpleNamespace(xcom_push=lambda key, value: None)}
    go_on = partial(SendOperator.execute, operator, context)
    sent: str = operator._carried_out(flow, context, "execute", go_on)
    return sent
