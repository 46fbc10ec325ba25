"""What a DAG file pays for ``DurableLLMOperator``: little beyond the base class, which brings its libraries itself."""

from __future__ import annotations

import json
import subprocess
import sys

#: As for a durable task; the operators are lazy, so that naming one loads no other.
LIMIT = 40
PROGRAM = """
import json, sys
from airflow.providers.common.ai.operators.llm import LLMOperator
before = {name for name in sys.modules if name.split(".")[0] != "airflow_aiflow"}
import airflow_aiflow.operators
assert "airflow_aiflow.operators.llm" not in sys.modules, "operators are lazy"
from airflow_aiflow.operators import DurableLLMOperator
DurableLLMOperator(task_id="ask", prompt="?", llm_conn_id="model")
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_operator_adds_little_to_its_base_class() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    added = json.loads(done.stdout.splitlines()[-1])
    assert len(added) < LIMIT, added
    assert not {"psycopg", "minio", "alembic", "zstandard"} & set(added)
