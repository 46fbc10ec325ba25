"""
A real ledger with real attempts in it, and the app that reads it.

Airflow itself is a stand-in here: its runs and a clear's list of task instances; tests/airflow has the real one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_aiflow.api import problem, rights
from airflow_aiflow.api.body_limit import BodyLimit
from airflow_aiflow.api.looks import Looks
from airflow_aiflow.api.reading import ClearPlan, LatestRun, Reading
from airflow_aiflow.api.reading_app import include
from airflow_aiflow.api.undo_by_hand import ServerHost, undo_by_hand
from airflow_aiflow.durable.clear_preview import Instance
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import QuestionWrite
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_figures import PostgresFigures
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.storage.postgres_items import PostgresItems
from airflow_aiflow.storage.postgres_limits import PostgresLimits
from airflow_aiflow.storage.postgres_overview import PostgresOverview
from airflow_aiflow.storage.postgres_runs import PostgresRuns
from airflow_aiflow.storage.postgres_timeline import PostgresTimeline
from airflow_aiflow.testing import DurableTask, ScriptedModels
from tests.contract.ledger_world import an_intent, start

URL = "/aiflow/api/v1"

#: How far the story is moved into the past: calls without an outcome are then in doubt, and the tally sees all.
PAST = timedelta(minutes=10)

_AGE = (
    "update aiflow.lease set expires_at = expires_at - %(past)s, progress_at = progress_at - %(past)s",
    "update aiflow.attempt set started_at = started_at - %(past)s, ended_at = ended_at - %(past)s",
    (
        "update aiflow.intent set intended_at = intended_at - %(past)s, settled_at = settled_at - %(past)s,"
        " decided_at = decided_at - %(past)s"
    ),
    "update aiflow.step set recorded_at = recorded_at - %(past)s",  # ended_at is sealed
    "update aiflow.execution set created_at = created_at - %(past)s, finished_at = finished_at - %(past)s",
    "update aiflow.event set at = at - %(past)s",
    "update aiflow.question set asked_at = asked_at - %(past)s",
    "update aiflow.requeue set at = at - %(past)s",
    "update aiflow.incident set found_at = found_at - %(past)s",
    "update aiflow.tally_mark set upto = upto - %(past)s - interval '1 minute'",
)

REQUEST = encode(
    {
        "function": "jobs.pay",
        "args": [4711, {"iban": "DE17", "password": "hunter2"}],
        "kwargs": {"url": "https://pay.example/v1/payouts", "cents": 1200},
        "prints": {"number": "00", "to": "01", "cents": "02", "url": "03"},
        "keyed": True,
    }
).data


class KilledError(BaseException):
    """End an attempt without a word, as a kill does."""


@dataclass(frozen=True)
class User:
    """Be a user; the name says what is allowed."""

    name: str

    def get_id(self) -> str:
        return self.name

    def get_name(self) -> str:
        return self.name


#: What users may do, but for the DAG ``secret``, which nobody may see.
RIGHTS = {"ann": {"GET", "POST", "PUT"}, "bob": {"GET", "POST", "PUT"}, "reader": {"GET"}}


class FakeAirflow:
    """Be Airflow, with what a test says."""

    def __init__(self) -> None:
        self.runs: list[LatestRun] = []
        self.instances: list[Instance] = []
        self.downstream: dict[str, list[str]] = {}

    def latest(self, dag_id: str, limit: int) -> Sequence[LatestRun]:
        return self.runs[:limit] if dag_id == "invoices" else []

    def plan(self, dag_id: str, run_id: str, tasks: Any, **options: bool) -> ClearPlan:
        if dag_id != "invoices" or run_id != "monday":
            raise LookupError(run_id)
        wanted = None if tasks is None else {one if isinstance(one, str) else one[0] for one in tasks}
        chosen = [one for one in self.instances if wanted is None or one.task_id in wanted]
        asset = {"uri": "s3://reports/x", "producing_tasks": [], "scheduled_dags": []}
        return ClearPlan(chosen, self.downstream, [asset])

    def heartbeat_timeout(self) -> float:
        return 300.0


class House:
    """
    Hold one ledger, the app on it, and what is behind it.

    :param dsn: address of the tables' owner.
    """

    def __init__(self, dsn: str) -> None:
        upgrade(dsn)
        self.dsn = dsn
        self.ledger = PostgresLedger.connect(dsn)
        self.store = MemoryArtifactStore()
        self.airflow = FakeAirflow()
        self.figures = PostgresFigures.connect(dsn)
        self.connections = Connections(dsn, 8)
        self.user = User("ann")
        cipher = PayloadCipher(())
        self.reading = Reading(
            timeline=PostgresTimeline(self.connections),
            overview=PostgresOverview(self.connections, cipher),
            runs=PostgresRuns(self.connections),
            inbox=PostgresInbox(self.connections),
            items=PostgresItems(self.connections),
            limits=PostgresLimits(self.connections),
            figures=Looks(self.figures.look),
            cipher=cipher,
            store=lambda: self.store,
            airflow=self.airflow,
            undo=lambda *word: undo_by_hand(self._services(), *word),
        )
        self.app = app = FastAPI(title="aiflow", docs_url=None, redoc_url=None, openapi_url=None)
        problem.install(app)
        app.add_middleware(BodyLimit)
        include(app, lambda: self.reading)
        problem.describe(app)
        app.dependency_overrides[rights.signed_in] = lambda: self.user
        self.server = FastAPI()
        self.server.mount("/aiflow", app)  # as Airflow's API server does
        self.client = TestClient(self.server, raise_server_exceptions=False)

    def _services(self) -> Services:
        return Services(
            ledger=self.ledger,
            store=lambda: self.store,
            host=ServerHost(),
            settings=FlowSettings(),
            clock=SystemClock(),
        )

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let users in by their names."""
        self.user = User("ann")

        def may(user: Any, method: str, dag_id: str, entity: object = None) -> bool:
            return dag_id != "secret" and method in RIGHTS.get(user.name, set())

        monkeypatch.setattr(rights, "may", may)
        monkeypatch.setattr(
            rights,
            "readable",
            lambda user: tuple(d for d in ("invoices", "billing", "secret") if RIGHTS.get(user.name)),
        )

    def get(self, path: str, **params: Any) -> Any:
        """Read."""
        return self.client.get(f"{URL}{path}", params=params)

    def post(self, path: str, **body: Any) -> Any:
        """Say something."""
        return self.client.post(f"{URL}{path}", json=body)

    def task(self, task_id: str, run_id: str = "monday", **options: Any) -> DurableTask:
        """Give a task instance of the DAG ``invoices``."""
        return DurableTask(
            dag_id="invoices",
            task_id=task_id,
            run_id=run_id,
            ledger=self.ledger,
            store=self.store,
            clock=SystemClock(),
            models=ScriptedModels(price=Decimal("0.004")),
            **options,
        )

    def age(self) -> None:
        """Move everything that is written into the past."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in _AGE:
                connection.execute(statement, {"past": PAST})

    def sql(self, statement: Any, **params: Any) -> list[Any]:
        """Look behind."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def doubt(self, key: str, *, dag_id: str = "billing", run_id: str = "tuesday", name: str = "pay") -> int:
        """Leave a call without an outcome behind, and give its number."""
        taken = start(self.ledger, dag_id=dag_id, run_id=run_id, task_id=f"book_{key}".replace("/", "_"))
        effect = EffectId(f"dag:{dag_id}", name, key)
        self.ledger.intend(taken.lease, an_intent(effect, request=REQUEST))
        found = self.ledger.effect(effect)
        assert found is not None
        return found.number

    def question(self, subject: str, *, dag_id: str = "billing", assigned: tuple[str, ...] = ()) -> int:
        """Ask something, and give its number."""
        taken = start(self.ledger, dag_id=dag_id, run_id="tuesday", task_id="ask")
        asked = QuestionWrite(
            kind="ask",
            name="release",
            bound_to=subject.encode().ljust(32, b".")[:32],
            subject=subject,
            body="Look at it first.",
            options=("Approve", "Reject"),
            effect=EffectId(f"dag:{dag_id}", "release", subject),
            assigned_users=assigned,
        )
        return self.ledger.ask(taken.lease, asked).number

    def tell(self) -> None:
        """Let things happen."""
        _killed_and_resumed(self)
        _cleared(self)
        _mapped(self)
        _many_steps(self)
        self.first_doubt = self.doubt("billing/4711")
        self.second_doubt = self.doubt("billing/4712")
        self.secret_doubt = self.doubt("secret/1", dag_id="secret")
        self.asked = self.question("Send the reminders?")
        _recovered(self)
        self.age()
        at = datetime.now(UTC) - PAST
        self.airflow.runs = [
            LatestRun("monday", "success", at, at + timedelta(seconds=30)),
            LatestRun("sunday", "failed", at - timedelta(days=1), None),
        ]
        self.airflow.instances = [
            Instance("split", -1, "success"),
            Instance("review", -1, "success"),
            Instance("plain", -1, "success"),
        ]
        self.airflow.downstream = {"split": ["review"], "review": [], "plain": []}

    def close(self) -> None:
        """Give the connections back."""
        self.ledger.close()
        self.figures.close()
        self.connections.close()


def add(left: int, right: int) -> int:
    return left + right


def page(number: int) -> dict[str, Any]:
    return {"page": number, "text": f"the text of page {number}"}


def fails_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("page 3 is torn")
    return number


def large(number: int) -> str:
    return f"{number} " * 20_000


def send(to: str, password: str) -> dict[str, str]:
    return {"sent": to}


def _killed_and_resumed(house: House) -> None:
    task = house.task("split")

    def killed(flow: Flow) -> None:
        flow.step("count", add, 1, 2)
        flow.llm("sum up", "the first page", llm_conn_id="model")
        flow.llm("sum up", "the second page", llm_conn_id="model")
        raise KilledError

    with contextlib.suppress(KilledError):
        task.run(killed)
    house.sql("update aiflow.lease set expires_at = clock_timestamp() - interval '1 second'")

    def whole(flow: Flow) -> str:
        flow.step("count", add, 1, 2)
        flow.llm("sum up", "the first page", llm_conn_id="model")
        flow.llm("sum up", "the second page", llm_conn_id="model")
        flow.step("book", large, 7)
        flow.save(b"%PDF-1.7 not really", name="report.pdf", media_type="application/pdf")
        flow.step("file", lambda: flow.save("a table", name="table.csv", media_type="text/csv"))
        flow.effect("mail", send, "ann@example.com", "hunter2", key="invoice/1")
        return "done"

    task.run(whole)


def _cleared(house: House) -> None:
    task = house.task("review")
    prompts = ["is it due?", "is it paid?"]

    def body(flow: Flow) -> list[str]:
        return [flow.llm("ask", prompt, llm_conn_id="model") for prompt in prompts] + [
            str(flow.step("count", add, 2, 2))
        ]

    task.run(body)
    task.cleared()
    prompts[1] = "is it settled?"
    task.run(body)


def _mapped(house: House) -> None:
    task = house.task("pages")

    def body(flow: Flow) -> int:
        flow.map("read", page, range(30))
        flow.map("check", fails_at_three, range(10), on_item_error="skip")
        return len(flow.llm_map("classify", [f"page {n}" for n in range(25)], llm_conn_id="model"))

    task.run(body)


def _many_steps(house: House) -> None:
    task = house.task("long", run_id="sunday")

    def body(flow: Flow) -> None:
        for number in range(60):
            flow.step("add", add, number, 1)

    task.run(body)


def _recovered(house: House) -> None:
    """Leave what recovery leaves: an incident of the task that was killed, and its requeue."""
    house.sql(
        "insert into aiflow.incident (execution_id, fence, dag_id, run_id, task_id, map_index, kind, basis, decision,"
        " why, report, look_again_at, detected_after) select execution_id, 1, dag_id, run_id, task_id, map_index,"
        " 'dead_worker', 'dead', 'requeue', 'its process is gone', true, clock_timestamp(), 4.2"
        " from aiflow.execution where task_id = 'split'"
    )
    house.sql(
        "insert into aiflow.requeue (execution_id, fence, ti_id, clear_number, state)"
        " select execution_id, 1, gen_random_uuid(), 0, 'consumed' from aiflow.execution where task_id = 'split'"
    )
