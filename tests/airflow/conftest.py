"""One real stack, with a real Airflow, for all tests of this folder: it is started at its first use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_aiflow.local.stack import Stack, StackPlan
from tests.stack import FOLDER_STACKS

DAGS = Path(__file__).parent / "dags"


@pytest.fixture(scope="session")
def airflow_stack(stack_folder: Path) -> Iterator[Stack]:
    """
    Give a running stack whose DAG folder holds copies of the files in ``tests/airflow/dags``.

    A test may put further files into ``airflow_stack.plan.dags_folder`` and wait for their DAGs.
    """
    dags = stack_folder / "dags"
    shutil.copytree(DAGS, dags, ignore=shutil.ignore_patterns("__pycache__"))
    # A job that runs as it stands names no delay of its retries, and Airflow's own is five minutes.
    options = {"core.default_task_retry_delay": "1"}
    with Stack(StackPlan(home=stack_folder / "stack", dags_folder=dags, airflow_options=options)) as stack:
        FOLDER_STACKS[Path(__file__).parent] = stack
        yield stack
