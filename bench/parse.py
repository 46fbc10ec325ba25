"""What a DAG file pays for importing us, in modules: a count is the same on every machine."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import sys, airflow.sdk
before = set(sys.modules)
import airflow_aiflow
from airflow.sdk import dag, task
from airflow_aiflow import Flow

@dag(schedule=None)
def probe():
    @task.durable(retries=1)
    def review(flow: Flow, text: str):
        return text
    review("x")

probe()
print(len(set(sys.modules) - before))
"""


def parse_modules() -> int:
    """Count the modules that a DAG file with ``@task.durable`` adds after ``airflow.sdk``."""
    # -S would hide the entry points that bring the decorator, so the interpreter starts as Airflow's own does.
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    return int(run.stdout.split()[-1])
