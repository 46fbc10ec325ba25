"""``DurableAgentOperator`` and the two decorators under Airflow's own task runner, against the stand-in model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local import stack_connections
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from tests.integration.airflow.conftest import Airflow
from tests.integration.airflow.tried_twice import TWICE, dag_of

AGENTS = (
    TWICE
    + """
from pydantic_ai.toolsets import FunctionToolset
from airflow_aiflow import effect

class Verdict(BaseModel):
    refunded: bool
    why: str

def lookup_order(order_id: int) -> str:
    "Look up an order."
    seen.append("look")
    return "a lamp"

@effect(key="refund/{order_id}")
def refund_order(order_id: int, cents: int) -> str:
    "Refund an order."
    seen.append("refund")
    return "refunded"

TOOLS = FunctionToolset([lookup_order, refund_order])
PROMPT = "The {{ params.what }} broke. It cost 1200 cents. Order 4711."
"""
)

ASK = "twice(DurableAgentOperator)(task_id='ask', prompt=PROMPT, llm_conn_id='pydanticai_default', toolsets=[TOOLS],"


@pytest.fixture
def model(model_service: ModelService, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelService]:
    """Give the stand-in model behind the default connection."""
    monkeypatch.setenv("AIRFLOW_CONN_PYDANTICAI_DEFAULT", json.dumps(stack_connections.model(model_service)))
    yield model_service
    PydanticAICaller().close()


@pytest.mark.parametrize("options", ["", "durable=True, usage_limits={'request_limit': 3},", "message_history='[]',"])
def test_an_agents_requests_are_paid_once_and_its_refund_is_made_once(
    airflow: Airflow, model: ModelService, options: str
) -> None:
    source = dag_of(f"{ASK} {options} system_prompt='Be kind.', params={{'what': 'lamp'}})")
    ran = airflow.run(source, head=AGENTS)
    assert ran.run.state == "success", ran.states
    assert ran.seen[:2] == ["look", "refund"]
    [answer] = ran.seen[2:]
    assert "lamp" in answer
    assert len(model.requests()) == 3
    rows = airflow.rows(
        "select s.kind, s.name, s.tokens_in > 0 from aiflow.step s join aiflow.execution e using (execution_id) "
        "where run_id = %(run)s and dag_id = %(dag)s order by s.ended_at",
        ran,
    )
    assert [row[:2] for row in rows] == [("llm", "agent"), ("step", "lookup_order"), ("llm", "agent"), ("llm", "agent")]


def test_a_model_comes_back_and_a_failed_request_is_made_again_alone(airflow: Airflow, model: ModelService) -> None:
    model.set_faults(Fault("cut", first=1))
    ran = airflow.run(dag_of(f"{ASK} output_type=Verdict, params={{'what': 'lamp'}})"), head=AGENTS)
    assert ran.run.state == "success", ran.states
    assert type(ran.seen[0]).__name__ == "ModelIncompleteError"
    assert ran.seen[1:] == ["look", "refund"]
    assert [request.answered for request in model.requests()] == [False, True, True, True]


def test_a_reviewers_wish_is_a_request_of_its_own_and_paid_once(airflow: Airflow, model: ModelService) -> None:
    """As common-ai's review does: the same operator asks its agent once more, with the conversation so far."""
    source = dag_of(
        "class Reviewed(DurableAgentOperator):",
        "    def execute(self, context):",
        "        first = super().execute(context)",
        "        again, history = self.regenerate_with_feedback(feedback='Be short. The lamp.', message_history=None)",
        "        seen.append(again)",
        "        return first",
        "twice(Reviewed)(task_id='ask', prompt='The lamp broke. It is old.', llm_conn_id='pydanticai_default')",
    )
    ran = airflow.run(source, head=AGENTS)
    assert ran.run.state == "success", ran.states
    assert len(model.requests()) == 2
    assert ran.seen[0] == ran.seen[2]


def test_common_ais_own_approval_of_a_tool_goes_on_where_it_paused(airflow: Airflow, model: ModelService) -> None:
    source = dag_of(
        "from pydantic_ai import Tool",
        "def pay(order_id: int) -> str:",
        "    'Pay an order.'",
        "    seen.append('paid')",
        "    return 'paid'",
        "class Asks(DurableAgentOperator):",
        "    def execute(self, context):",
        "        try:",
        "            super().execute(context)",
        "        except BaseException as signal:",
        "            seen.append(type(signal).__name__)",
        "            given = signal.kwargs",
        "        event = {'chosen_options': ['Approve'], 'params_input': {}}",
        "        return self.resume_after_tool_approval(context, event=event, **given)",
        "tools = [FunctionToolset([lookup_order, Tool(pay, requires_approval=True)])]",
        "Asks(task_id='ask', prompt='The lamp broke.', llm_conn_id='pydanticai_default', toolsets=tools)",
    )
    ran = airflow.run(source, head=AGENTS)
    assert ran.run.state == "success", ran.states
    assert ran.seen == ["look", "TaskAwaitingInput", "paid"]
    assert len(model.requests()) == 3


def test_an_agent_is_mapped(airflow: Airflow, model: ModelService) -> None:
    source = dag_of(
        "made = DurableAgentOperator.partial(task_id='ask', llm_conn_id='pydanticai_default', toolsets=[TOOLS])",
        "made.expand(prompt=['The lamp broke.', 'The chair is red.'])",
    )
    ran = airflow.run(source, head=AGENTS)
    assert ran.run.state == "success", ran.states
    assert len(model.requests()) == 6
    assert sorted(ran.seen) == ["look", "look", "refund", "refund"]


def test_a_budget_stops_an_agent_before_its_request(airflow: Airflow, model: ModelService) -> None:
    ran = airflow.run(dag_of(f"{ASK} budget='100 tokens', params={{'what': 'lamp'}})"), head=AGENTS)
    assert ran.run.state == "failed"
    assert "BudgetExceededError" in repr(ran.seen[0]) or "budget of task" in str(ran.seen[0])
    assert model.requests() == []


def test_the_decorators_ask_what_their_functions_say(airflow: Airflow, model: ModelService) -> None:
    source = dag_of(
        "@task.durable_agent(llm_conn_id='pydanticai_default', toolsets=[TOOLS])",
        "def resolve(ticket: str): return f'{ticket}. It broke.'",
        "@task.durable_llm(llm_conn_id='pydanticai_default', system_prompt='Be brief.')",
        "def sum_up(text: str): return f'Sum up {text}. It is long.'",
        "@task",
        "def read(answer): seen.append(answer)",
        "read(sum_up(resolve('The lamp of {{ dag.dag_id }}')))",
    )
    ran = airflow.run(source, head=AGENTS)
    assert ran.run.state == "success", ran.states
    assert ran.seen[:2] == ["look", "refund"]
    assert len(model.requests()) == 4
    kinds = airflow.rows(
        "select e.task_id, s.kind, count(*) from aiflow.step s join aiflow.execution e using (execution_id) "
        "where run_id = %(run)s and dag_id = %(dag)s group by 1, 2 order by 1, 2",
        ran,
    )
    assert kinds == [("resolve", "llm", 3), ("resolve", "step", 1), ("sum_up", "llm", 1)]


@pytest.mark.parametrize(
    ("operator", "options", "requests"),
    [("DurableLLMOperator", "", 1), ("DurableAgentOperator", "toolsets=[TOOLS],", 3)],
)
def test_an_operators_answers_are_taken_from_another_run(
    airflow: Airflow, model: ModelService, operator: str, options: str, requests: int
) -> None:
    source = f"""
    @dag(dag_id="{operator}_of_another_run", schedule=None, start_date=dt.datetime(2026, 1, 1))
    def the_dag():
        {operator}(
            task_id="ask", prompt="The lamp broke. It cost 1200 cents. Order 4711.", {options}
            llm_conn_id="pydanticai_default", reuse=dt.timedelta(days=30)
        )

    the_dag()
    """
    for day in (1, 2):
        ran = airflow.run(source, head=AGENTS, logical_date=datetime(2026, 2, day, tzinfo=UTC))
        assert ran.run.state == "success", ran.states
    assert len(model.requests()) == requests
