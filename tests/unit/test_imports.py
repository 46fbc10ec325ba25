"""
What a DAG file pays for: modules that our imports add to those of a plain DAG file, counted, never timed.

Each program runs in a process of its own, first the plain part, then ours.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Fewer than this many modules, ours included; a plain DAG file itself adds 47 to `import airflow.sdk`.
LIMIT = 40
HEAVY = {"alembic", "boto3", "fastapi", "minio", "numpy", "psycopg", "psycopg_pool", "pydantic_ai", "zstandard"}

PLAIN = """
import sys
import airflow.sdk
from airflow.sdk import dag, task

@dag
def plain():
    @task
    def work(text): return text
    work("a")
plain()
# Airflow has read our provider info by now: what is ours counts all the same.
before = {name for name in sys.modules if name.split(".")[0] != "airflow_aiflow"}
"""
REPORT = """
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""
DURABLE = """
from airflow_aiflow import Flow
@dag
def careful():
    @task.durable
    def work(flow: Flow, text): return flow.step("upper", str.upper, text)
    work("a")
careful()
"""
TYPED = """
from airflow_aiflow import EffectContext, Flow, durable
@dag
def careful():
    @durable
    def work(flow: Flow, text): return flow.step("upper", str.upper, text)
    work("a")
careful()
"""
FUNCTIONS = """
from airflow_aiflow import effect, step
@step
def double(number): return 2 * number
@effect(key="pay/{number}")
def pay(ctx, number): ...
"""
# The operator is the DAG's own and is paid for anyway.
RECOVERY = """
from airflow_aiflow.recovery import recovery_dag
dag = recovery_dag()
"""
ONCE = """
from airflow.providers.standard.operators.bash import BashOperator
before |= set(sys.modules)
from airflow_aiflow import once
@dag
def careful():
    once(BashOperator)(task_id="work", bash_command="true")
careful()
"""


def added(program: str) -> list[str]:
    """Return the modules that a program loads beyond those of a plain DAG file."""
    command = [sys.executable, "-c", PLAIN + program + REPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import airflow_aiflow", id="package"),
        pytest.param("import airflow_aiflow.exceptions", id="exceptions"),
        pytest.param(DURABLE, id="task.durable"),
        pytest.param(TYPED, id="durable"),
        pytest.param(FUNCTIONS, id="step and effect"),
        pytest.param(ONCE, id="once"),
        pytest.param(RECOVERY, id="recovery_dag"),
    ],
)
def test_a_dag_file_stays_cheap(program: str) -> None:
    modules = added(program)
    assert len(modules) < LIMIT, modules
    assert {name.split(".")[0] for name in modules} & HEAVY == set()


def test_the_package_alone_brings_nothing() -> None:
    """But for what Airflow itself has loaded by then: our provider info and our policy."""
    ours = ["airflow_aiflow", "airflow_aiflow.get_provider_info", "airflow_aiflow.policy"]
    assert added("import airflow_aiflow") == ours


def test_the_domain_needs_no_airflow() -> None:
    program = "import sys\nimport airflow_aiflow.durable.identity\nprint('airflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_count_finds_what_is_heavy() -> None:
    modules = added("import psycopg")
    assert len(modules) >= LIMIT
    assert "psycopg" in modules
