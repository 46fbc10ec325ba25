"""
Run DAGs by ``dag.test()``: Airflow's own task runner in this process, with a real ledger and a real artifact store.

Retries, kills and clears need the scheduler: those tests are in ``tests/airflow``.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from airflow_aiflow.hooks import aiflow
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate

HEAD = """
import datetime as dt
from airflow.sdk import DAG, dag, task, get_current_context
from airflow_aiflow import Flow

seen = []
"""


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    module: ModuleType
    run: Any
    states: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def seen(self) -> list[Any]:
        """What the tasks appended to the module's list ``seen``."""
        found: list[Any] = self.module.seen
        return found


@dataclass(frozen=True)
class Airflow:
    """An Airflow in this process."""

    home: Path
    ledger: str
    numbers: Iterator[int]

    def run(
        self,
        source: str,
        *,
        conf: Mapping[str, Any] | None = None,
        head: str = HEAD,
        logical_date: datetime | None = None,
    ) -> Ran:
        """
        Run a DAG file once.

        :param source: a function ``the_dag`` that is decorated with ``@dag``, without the imports of ``head``.
        :param conf: the run's parameters.
        :param head: what stands before it.
        :param logical_date: of the run; ``None``: now.
        """
        from airflow.dag_processing.dagbag import DagBag
        from airflow.utils.file import get_unique_dag_module_name

        name = f"dag_of_test_{next(self.numbers)}"
        file = self.home / "dags" / f"{name}.py"
        file.write_text(head + textwrap.dedent(source).replace("THE_DAG", name))
        bag = DagBag(dag_folder=str(file))
        assert bag.import_errors == {}
        [made] = bag.dags.values()
        module = sys.modules[get_unique_dag_module_name(str(file))]
        try:
            given: dict[str, Any] = {} if logical_date is None else {"logical_date": logical_date}
            run = made.test(run_conf=dict(conf or {}), **given)
        finally:
            del sys.modules[module.__name__]
            file.unlink()
        states: dict[str, list[str]] = {}
        for instance in run.get_task_instances():
            states.setdefault(instance.task_id, []).append(str(instance.state))
        return Ran(module, run, states)

    def xcom_sizes(self, ran: Ran) -> dict[str, int]:
        """Give the largest value that each task left in Airflow's database, in characters."""
        with sqlite3.connect(self.home / "airflow.db") as connection:
            rows = connection.execute(
                "select task_id, max(length(value)) from xcom where run_id = ? and dag_id = ? group by task_id",
                (ran.run.run_id, ran.run.dag_id),
            )
            return dict(rows.fetchall())

    def rows(self, query: str, ran: Ran) -> list[tuple[Any, ...]]:
        """Ask the ledger; ``%(run)s`` is the run's id, ``%(dag)s`` the DAG's."""
        with psycopg.connect(self.ledger) as connection:
            return connection.execute(query.encode(), {"run": ran.run.run_id, "dag": ran.run.dag_id}).fetchall()


@pytest.fixture(scope="session")
def airflow(postgres_server: PostgresServer, object_store: ObjectStoreServer) -> Iterator[Airflow]:
    """Give an Airflow whose connections lead to the shared servers."""
    from airflow.utils.db import initdb

    home = Path(os.environ["AIRFLOW_HOME"])
    (home / "dags").mkdir(exist_ok=True)
    ledger = postgres_server.fresh_database("airflow_layer")
    migrate.upgrade(ledger)
    store = {
        "conn_type": "minio",
        "host": f"http://{object_store.endpoint}",
        "login": object_store.access_key,
        "password": object_store.secret_key,
        "schema": object_store.bucket(),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_AIFLOW_LEDGER", ledger)
        patch.setenv("AIRFLOW_CONN_AIFLOW_ARTIFACTS", json.dumps(store))
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        initdb()
        yield Airflow(home, ledger, count())
        aiflow.close_all()


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Give signals back: the task runner and the flow take two of them for good, as a task process may."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
