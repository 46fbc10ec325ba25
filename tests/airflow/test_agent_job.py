"""
The job of an agent that may refund runs as it stands in a real Airflow: its empty functions are filled in on a copy.

A person approves in Airflow's own form. One run is killed between that and the record of the refund; one is declined.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.cli import ledger_address
from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack
from airflow_aiflow.storage.postgres_inbox import PostgresInbox

JOB = Path(__file__).parents[1] / "jobs" / "d_agent.txt"

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 120.0

STUB = '    return "..."\n'

LOOKUP = """    with open("{folder}/looked", "a") as file:
        file.write(f"{{order_id}}\\n")
    return f"order {{order_id}}"
"""

#: The refund is made, and then the process dies before it is recorded, where the test wishes so.
REFUND = """    import os, signal
    with open("{folder}/refunded", "a") as file:
        file.write(f"{{order_id}} {{cents}}\\n")
    if os.path.exists("{folder}/kill"):
        os.unlink("{folder}/kill")
        os.kill(os.getpid(), signal.SIGKILL)
    return f"refunded {{cents}}"
"""

#: The stand-in model takes its numbers from the ticket's text, so each ticket is about an order of its own.
TICKETS = {
    "killed": "The lamp broke. I want my money back.",
    "declined": "The chair is red. I wanted a green one.",
}


class Tickets:
    """Drive the runs of the job."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.client: AirflowClient = stack.airflow.client()

    def trigger(self, run_id: str, ticket: str) -> None:
        """Start a run."""
        self.client.trigger("handle_ticket", {"ticket": ticket}, run_id=run_id)

    def lines(self, what: str) -> list[str]:
        """What the functions of the job have written."""
        file = self.folder / what
        return file.read_text().splitlines() if file.exists() else []

    def waits(self, run_id: str) -> dict[str, Any]:
        """Wait until the task asks in Airflow's form, and give the form."""
        found = self.client.wait_for_task(
            "handle_ticket", run_id, "resolve", "awaiting_input", "failed", "success", timeout=PATIENCE
        )
        assert found["state"] == "awaiting_input", self.client.logs("handle_ticket", run_id, "resolve")
        form: dict[str, Any] = self.client.request("GET", self._form(run_id))
        return form

    def choose(self, run_id: str, beginning: str) -> None:
        """Be a person who answers in Airflow's form."""
        form = self.client.request("GET", self._form(run_id))
        [option] = [one for one in form["options"] if one.startswith(beginning)]
        self.client.request("PATCH", self._form(run_id), body={"chosen_options": [option], "params_input": {}})

    def doubt(self, run_id: str) -> int:
        """Wait for the question what became of a refund; give its number."""

        def found() -> int | None:
            with closing(PostgresInbox.connect(self.stack.postgres.dsn())) as inbox:
                for entry in inbox.waiting():
                    effect = entry.effect
                    if effect is not None and effect.execution.run_id == run_id and effect.state == "in_doubt":
                        return entry.number
            return None

        return wait_for(found, "the doubt", PATIENCE)

    def resolve(self, number: int, *words: str) -> None:
        """Be a person who has looked at the shop, and says so on the command line."""
        environment = {name: value for name, value in os.environ.items() if name != ledger_address.VARIABLE}
        command = [sys.executable, "-m", "airflow_aiflow.cli", "effects", "resolve", str(number), *words, "--json"]
        command += ["--by", "ada", "--reason", "seen in the shop", "--home", str(self.stack.home)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment, cwd=self.folder
        )
        assert json.loads(done.stdout)["counts"], done.stderr

    def ended(self, run_id: str) -> str:
        """Wait for the end of a run."""
        return self.client.wait_for_run("handle_ticket", run_id, PATIENCE)

    @staticmethod
    def _form(run_id: str) -> str:
        return f"/dags/handle_ticket/dagRuns/{run_id}/taskInstances/resolve/-1/hitlDetails"


@pytest.fixture(scope="module")
def tickets(airflow_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Tickets:
    folder = tmp_path_factory.mktemp("tickets")
    folder.chmod(0o777)
    source = JOB.read_text()
    for body in (LOOKUP, REFUND):
        assert STUB in source
        source = source.replace(STUB, body.format(folder=folder), 1)
    (airflow_stack.plan.dags_folder / "d_agent.py").write_text(source)
    tickets = Tickets(airflow_stack, folder)
    tickets.client.wait_for_dag("handle_ticket")
    return tickets


def test_killed_between_approval_and_record_there_is_one_refund(tickets: Tickets) -> None:
    before = len(tickets.stack.model.requests())
    tickets.trigger("killed", TICKETS["killed"])
    form = tickets.waits("killed")
    assert form["subject"].startswith('May "refund_order" be sent?  refund/')
    assert "refund_order(order_id=" in form["body"]
    assert tickets.lines("refunded") == []
    (tickets.folder / "kill").touch()
    tickets.choose("killed", "Approve")
    number = tickets.doubt("killed")
    assert len(tickets.lines("refunded")) == 1
    tickets.resolve(number, "--happened", "--result", '"refunded 1"')
    assert tickets.ended("killed") == "success"
    assert len(tickets.lines("refunded")) == len(tickets.lines("looked")) == 1
    assert len(tickets.stack.model.requests()) - before == 3, "no request is paid twice"
    assert "lamp" in tickets.client.xcom("handle_ticket", "killed", "resolve")

    # The same ticket a second time: the order's refund is known, and nobody is asked.
    tickets.trigger("again", TICKETS["killed"])
    assert tickets.ended("again") == "success"
    assert len(tickets.lines("refunded")) == 1
    assert len(tickets.lines("looked")) == 2


def test_what_is_declined_is_not_refunded_and_the_agent_goes_on(tickets: Tickets) -> None:
    refunds = tickets.lines("refunded")
    tickets.trigger("declined", TICKETS["declined"])
    tickets.waits("declined")
    tickets.choose("declined", "Reject")
    assert tickets.ended("declined") == "success"
    assert tickets.lines("refunded") == refunds
    assert "chair" in tickets.client.xcom("handle_ticket", "declined", "resolve")
