"""What a DAG file pays for importing us, in modules: a count is the same on every machine."""

from __future__ import annotations

import subprocess
import sys

#: A plain DAG file first: what Airflow itself loads for any ``@task`` is not ours.
PROBE = """
import sys
import airflow.sdk
from airflow.sdk import dag, task

@dag(schedule=None)
def plain():
    @task(retries=1)
    def review(text: str):
        return text
    review("x")

plain()
before = {name for name in sys.modules if name.split(".")[0] != "airflow_aiflow"}
from airflow_aiflow import Flow

@dag(schedule=None)
def durable():
    @task.durable(retries=1)
    def review(flow: Flow, text: str):
        return text
    review("x")

durable()
print(len(set(sys.modules) - before))
"""


def parse_modules() -> int:
    """Count the modules that a DAG file with ``@task.durable`` adds to a plain one, after ``airflow.sdk``."""
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    return int(run.stdout.split()[-1])
