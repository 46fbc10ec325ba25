"""``DurableAgentOperator`` takes what ``AgentOperator`` takes, costs a DAG file little, and refuses wrong options."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest
from airflow.providers.common.ai.operators.agent import AgentOperator
from pydantic_ai.toolsets import FunctionToolset

from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.operators import DurableAgentOperator

LIMIT = 40
PROGRAM = """
import json, sys
from airflow.providers.common.ai.operators.agent import AgentOperator
before = {name for name in sys.modules if name.split(".")[0] != "airflow_aiflow"}
from airflow_aiflow.operators import DurableAgentOperator
DurableAgentOperator(task_id="ask", prompt="?", llm_conn_id="model")
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_operator_adds_little_to_its_base_class() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    added = json.loads(done.stdout.splitlines()[-1])
    assert len(added) < LIMIT, added
    assert not {"psycopg", "minio", "alembic", "zstandard"} & set(added)


def test_every_parameter_of_the_base_class_is_taken() -> None:
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(AgentOperator.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is not parameter.empty
    }
    assert "tool_approval_timeout" in given
    made = DurableAgentOperator(task_id="ask", prompt="?", llm_conn_id="model", **given)
    assert made.prompt == "?"


@pytest.mark.parametrize("durable", [True, False])
def test_it_is_durable_whatever_is_said_and_no_toolset_needs_an_id(durable: bool) -> None:
    made = DurableAgentOperator(
        task_id="ask", prompt="?", llm_conn_id="model", durable=durable, toolsets=[FunctionToolset([len])]
    )
    assert made.durable is False, "common-ai's own journal is off"


@pytest.mark.parametrize(
    "wrong", [{"on_clear": "sometimes"}, {"budget": "much"}, {"step_timeout": 0}, {"rate_limit": ""}]
)
def test_a_wrong_option_is_refused_at_parse(wrong: dict[str, Any]) -> None:
    with pytest.raises(FlowOptionError):
        DurableAgentOperator(task_id="ask", prompt="?", llm_conn_id="model", **wrong)
