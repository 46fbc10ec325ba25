"""
The peer's side: fetch, charge, finish as the tools of one durable agent, with as many retries as its DAG's id says.

What goes wrong, and the folder in which the outside leaves its lines, come with the run's ``conf``. The model's name is
the scenario's, so that the stand-in model's log tells whose calls were billed.
"""

# A DAG file declares values that arrive when it runs; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import threading
from pathlib import Path

from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.sdk import DAG, Param
from pydantic_ai.toolsets import FunctionToolset

#: Never set: to wait a moment in a loop.
MOMENT = threading.Event()

#: Where the outside is, in a task's process.
OUTSIDE = Path()


def note(what: str, line: str) -> None:
    """Leave one line outside."""
    handle = os.open(OUTSIDE / what, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o666)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def hit(place: str) -> None:
    """Do what the scenario wishes of this place, as often as it wishes."""
    wishes = json.loads((OUTSIDE / "faults.json").read_text())
    what, times = wishes.get(place, ("", 0))
    faults = OUTSIDE / "faults"
    if (faults.exists() and faults.read_text().splitlines().count(place) >= times) or not times:
        return
    note("faults", place)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ConnectionResetError(f"the answer of {place} was lost")
    if what == "hold":
        while not (OUTSIDE / "go").exists():
            MOMENT.wait(0.05)


def fetch(order: str) -> str:
    """Read an order."""
    return "order 4711 of 11800 cents"


def charge(order: str) -> str:
    """Charge an order: it is committed before anything goes wrong."""
    note("applied", "4711")
    hit("charge")
    return "charged"


def finish(order: str) -> str:
    """Finish an order."""
    hit("finish")
    return "finished"


def check(order: str) -> str:
    """Check an order: the tool that is added."""
    return "checked"


def toolset(*tools) -> FunctionToolset:
    """Give the agent's tools."""
    return FunctionToolset(tools=list(tools), id="orders")


class PeerAgent(AgentOperator):
    """Tell the tools where the outside is, and change the code between attempts where the scenario wants it."""

    def execute(self, context):
        """Run the agent."""
        global OUTSIDE
        params, later = context["params"], context["ti"].try_number > 1
        OUTSIDE = Path(params["folder"])
        if later and params["changes"] == "prompt":
            self.system_prompt = "Be very careful."
        if later and params["changes"] == "tools":
            self.toolsets = [toolset(fetch, charge, finish, check)]
        note("attempts", str(context["ti"].try_number))
        return super().execute(context)


for retries in range(3):
    with DAG(
        f"peer_agent_{retries}",
        schedule=None,
        start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        params={
            "folder": Param(type="string"),
            "key": Param(type="string"),
            "changes": Param("", type="string"),
        },
    ) as made:
        PeerAgent(
            task_id="agent",
            prompt="Charge order 4711.",
            system_prompt="Be careful.",
            llm_conn_id="pydanticai_default",
            model_id="openai-chat:{{ params.key }}",
            toolsets=[toolset(fetch, charge, finish)],
            durable=True,
            retries=retries,
            retry_delay=dt.timedelta(seconds=1),
        )
    globals()[made.dag_id] = made
