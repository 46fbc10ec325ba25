"""The demo: start a stack of its own, run the document review in a real Airflow, kill it on the way, count outside."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_aiflow.demo.documents import Reading, read_documents
from airflow_aiflow.demo.follow import DAG, TASK, Follower
from airflow_aiflow.demo.home import prepare_home
from airflow_aiflow.demo.kill import Victim
from airflow_aiflow.demo.outcome import Outcome
from airflow_aiflow.demo.own_stack import OwnStack
from airflow_aiflow.demo.pages import split_into_pages
from airflow_aiflow.demo.screen import Screen
from airflow_aiflow.demo.watch import Watch, Watched
from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.stack import StackPlan
from airflow_aiflow.ui.routes import TASK_ROUTE

#: Seconds that the stand-in takes for an answer: less than a real model, and long enough for a kill to meet calls.
ANSWER_SECONDS = 0.15
#: The stack's own connection, to the stand-in.
STAND_IN = "pydanticai_default"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """
    What to run.

    :param home: folder of the demo's stack; emptied.
    :param folder: documents; ``None``: the licence texts of the installed distributions.
    :param limit: at most so many documents.
    :param kill_at: percentages of the pages.
    :param victim: what is killed: the task's process, and Airflow retries it; or its worker, with no retry at all.
    :param llm_conn_id: connection of a real model, from the environment; ``None``: the stand-in.
    :param began: when the command started, by ``time.monotonic``.
    """

    home: Path
    folder: Path | None
    limit: int | None
    kill_at: tuple[float, ...]
    llm_conn_id: str | None
    began: float
    victim: Victim = "task"


class Demo(OwnStack[Outcome]):
    """
    Own the stack of one demo.

    :param options: what to run.
    :param screen: where a person reads along.
    :raises AiflowConfigError: there is nothing to read, or the connection is not there; nothing was started.
    """

    def __init__(self, options: DemoOptions, screen: Screen) -> None:
        super().__init__(options.home, screen)
        self._options = options
        self._model = options.llm_conn_id or STAND_IN
        self._environment = {} if self._model == STAND_IN else model_environment(self._model, os.environ)
        self._folder = None if options.folder is None else str(options.folder.absolute())
        self._reading: Reading = read_documents(self._folder, options.limit)
        self._pages = sum(len(split_into_pages(document)) for document in self._reading.documents)

    def _plan(self) -> StackPlan:
        recovers = self._options.victim == "worker"
        dags = prepare_home(self._home, retries=0 if recovers else None)
        documents, skipped = len(self._reading.documents), len(self._reading.skipped)
        found = f"{_counted(documents, 'document')}, {_counted(self._pages, 'page')}, {skipped} skipped"
        self._screen.say(f"{found}: {self._reading.source}")
        return StackPlan(self._home, dags, environment=self._environment, recovery=recovers)

    def run(self) -> Outcome:
        """
        Run the review, kill it, and count.

        :raises StackError: the DAG does not load, or the run does not move.
        """
        stack, screen = self.stack, self._screen
        if self._model == STAND_IN:
            stack.model.set_faults(Fault("delay", seconds=ANSWER_SECONDS))
        client = stack.airflow.client()
        client.wait_for_dag(DAG)
        triggered = time.monotonic()
        run_id = client.trigger(DAG, {"folder": self._folder, "limit": self._options.limit, "model": self._model})
        screen.say(f"run {run_id} of {DAG}, its timeline: {self._timeline(run_id)}")
        documents = len(self._reading.documents)
        with Follower(stack.postgres.dsn(), run_id) as follower, screen.open(self._pages + documents):
            watched = Watch(
                follower=follower,
                client=client,
                run_id=run_id,
                documents=documents,
                pages=self._pages,
                points=self._options.kill_at,
                screen=screen,
                mend=stack.mend,
                victim=self._options.victim,
            ).until_end()
        return self._count(watched, run_id, time.monotonic() - triggered)

    def _count(self, watched: Watched, run_id: str, seconds: float) -> Outcome:
        stack, last = self.stack, watched.last
        recorded = 0 if last is None else last.pages + last.assessed
        real = self._model != STAND_IN
        reports = {} if last is None or last.result is None else self._fetch_reports(last.result)
        return Outcome(
            state="succeeded" if watched.state == "success" else watched.state,
            documents=len(self._reading.documents),
            skipped=len(self._reading.skipped),
            pages=self._pages,
            kills=watched.kills,
            kills_wanted=len(self._options.kill_at),
            attempts=0 if last is None else last.attempt,
            calls_made=recorded if real else len(stack.model.requests()),
            counted_at="ledger" if real else "model server",
            emails=len(stack.mail.mails()),
            records=len(stack.records.records()),
            seconds=seconds,
            first_page=None if watched.first_page is None else watched.first_page - self._options.began,
            cost=None if last is None or last.cost is None else float(last.cost),
            report=reports.get("report"),
            table=reports.get("table"),
            ui=self._timeline(run_id),
            run_id=run_id,
            victim=self._options.victim,
        )

    def _timeline(self, run_id: str) -> str:
        """Give the address of the page that shows what was killed and what went on."""
        return f"{self.stack.airflow.url}/dags/{DAG}/runs/{run_id}/tasks/{TASK}/plugin/{TASK_ROUTE}"

    def _fetch_reports(self, result: bytes) -> dict[str, str]:
        """Write the artifacts that the task returned to files that a person can open."""
        files = {}
        with self._artifacts() as store:
            for what, value in decode(result).items():
                if isinstance(value, ArtifactRef):
                    path = self.stack.home / str(value.name)
                    with store.open_file(bytes.fromhex(value.sha256)) as source:
                        path.write_bytes(source.read())
                    files[what] = str(path)
        return files


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def model_environment(conn_id: str, environment: Mapping[str, str]) -> dict[str, str]:
    """
    Take a real model's connection, and every other one it may name, from the environment to the stack's Airflow.

    :param conn_id: the connection.
    :param environment: of this process.
    :raises AiflowConfigError: it is not there.
    """
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    if not environment.get(variable):
        example: dict[str, Any] = {"conn_type": "pydanticai", "password": "KEY", "extra": {"model": "openai:gpt-5"}}
        raise AiflowConfigError(
            f"--llm-conn-id {conn_id}: there is no such connection in the environment. Set {variable}, for example to "
            f"{str(example).replace(chr(39), chr(34))}"
        )
    own = {f"AIRFLOW_CONN_{name.upper()}" for name in OWN_CONNECTIONS}
    return {name: value for name, value in environment.items() if name.startswith("AIRFLOW_CONN_") and name not in own}


#: What the stack sets itself, and a connection of the same name must not replace.
OWN_CONNECTIONS = ("aiflow_ledger", "aiflow_artifacts", "aiflow_api", "smtp_default", "records", STAND_IN)
