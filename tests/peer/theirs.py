"""The peer's side: the scenarios of one durable agent, played in a real Airflow that is started for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack, StackPlan

DAGS = Path(__file__).parent / "dags"

#: Seconds for one run, with its retries, on a busy machine: a task's start alone takes some.
RUN_SECONDS = 400.0

TASK = "agent"


@dataclass
class AgentRuns:
    """
    Make the runs of one scenario.

    :param key: the scenario's; the name of its model as well.
    :param folder: where the outside leaves its lines.
    """

    client: AirflowClient
    key: str
    folder: Path
    retries: int = 2
    changes: str = ""
    run_ids: list[str] = field(default_factory=list)

    @property
    def dag_id(self) -> str:
        """Which DAG: one for each number of retries."""
        return f"peer_agent_{self.retries}"

    def fault(self, **places: tuple[str, int]) -> None:
        """Say what goes wrong where, and how often."""
        (self.folder / "faults.json").write_text(json.dumps(places))

    def trigger(self) -> str:
        """Start a run."""
        conf = {"folder": str(self.folder), "key": self.key, "changes": self.changes}
        self.run_ids.append(self.client.trigger(self.dag_id, conf))
        return self.run_ids[-1]

    def ended(self, state: str) -> None:
        """Wait until the last run has ended, and how it must."""
        found = self.client.wait_for_run(self.dag_id, self.run_ids[-1], RUN_SECONDS)
        assert found == state, f"{self.key}: the run ended as {found}, not {state}"

    def clear(self) -> None:
        """Be a person who clears the task."""
        self.client.clear(self.dag_id, self.run_ids[-1], TASK, only_failed=False)

    def count(self, what: str) -> int:
        """Count the lines that the outside has."""
        file = self.folder / what
        return len(file.read_text().splitlines()) if file.exists() else 0


def later_step_killed(runs: AgentRuns) -> None:
    runs.fault(finish=("kill", 1))
    runs.trigger()
    runs.ended("success")


def killed_after_commit(runs: AgentRuns) -> None:
    runs.fault(charge=("kill", 1))
    runs.trigger()
    runs.ended("success")


def raises_after_commit(runs: AgentRuns) -> None:
    runs.fault(charge=("raise", 1))
    runs.trigger()
    runs.ended("success")


def fails_twice_then_clear(runs: AgentRuns) -> None:
    runs.retries = 1
    runs.fault(finish=("raise", 2))
    _failed_then_cleared(runs)


def killed_twice_then_clear(runs: AgentRuns) -> None:
    runs.retries = 1
    runs.fault(charge=("kill", 2))
    _failed_then_cleared(runs)


def _failed_then_cleared(runs: AgentRuns) -> None:
    runs.trigger()
    runs.ended("failed")
    runs.clear()
    runs.ended("success")


def clear_after_success(runs: AgentRuns) -> None:
    runs.fault()
    runs.trigger()
    runs.ended("success")
    attempts = runs.count("attempts")
    runs.clear()
    wait_for(lambda: runs.count("attempts") > attempts or None, "the cleared task", RUN_SECONDS)
    runs.ended("success")


def second_run(runs: AgentRuns) -> None:
    runs.fault()
    for _ in range(2):
        runs.trigger()
        runs.ended("success")


def failed_run_then_new_run(runs: AgentRuns) -> None:
    runs.retries = 0
    runs.fault(finish=("raise", 1))
    runs.trigger()
    runs.ended("failed")
    runs.trigger()
    runs.ended("success")


def prompt_changed(runs: AgentRuns) -> None:
    runs.changes = "prompt"
    runs.fault(finish=("raise", 1))
    runs.trigger()
    runs.ended("success")


def tool_added(runs: AgentRuns) -> None:
    runs.changes = "tools"
    runs.fault(finish=("raise", 1))
    runs.trigger()
    runs.ended("success")


def cleared_in_flight(runs: AgentRuns) -> None:
    runs.fault(charge=("hold", 1))
    runs.trigger()
    wait_for(lambda: runs.count("applied") or None, "the charge in flight", RUN_SECONDS)
    runs.clear()
    wait_for(lambda: runs.count("attempts") > 1 or None, "the cleared task", RUN_SECONDS)
    runs.ended("success")


#: What is not here, and why: ``NOT_PLAYED`` of the report.
SCENARIOS: dict[str, Callable[[AgentRuns], None]] = {
    each.__name__: each
    for each in (
        later_step_killed,
        killed_after_commit,
        raises_after_commit,
        fails_twice_then_clear,
        killed_twice_then_clear,
        clear_after_success,
        second_run,
        failed_run_then_new_run,
        prompt_changed,
        tool_added,
        cleared_in_flight,
    )
}


def run_theirs(folder: Path) -> dict[str, Any]:
    """
    Play the scenarios, all at once: most of their time is Airflow's.

    :param folder: for the stack and everything that they leave.
    :return: key -> what was seen, or why nothing was.
    """
    dags = folder / "dags"
    shutil.copytree(DAGS, dags, ignore=shutil.ignore_patterns("__pycache__"))
    with Stack(StackPlan(home=folder / "stack", dags_folder=dags)) as stack:
        for retries in range(3):
            stack.airflow.client().wait_for_dag(f"peer_agent_{retries}", RUN_SECONDS)

        def play(key: str) -> Any:
            own = folder / key
            own.mkdir()
            own.chmod(0o777)
            runs = AgentRuns(stack.airflow.client(), key, own)
            try:
                SCENARIOS[key](runs)
            except Exception as error:  # one scenario's trouble is its cell's
                return f"!{type(error).__name__}: {error}"
            billed = [each for each in stack.model.requests() if each.fields["model"] == key]
            return {"effects": runs.count("applied"), "calls": len(billed)}

        with ThreadPoolExecutor(len(SCENARIOS)) as pool:
            return dict(zip(SCENARIOS, pool.map(play, SCENARIOS), strict=True))
