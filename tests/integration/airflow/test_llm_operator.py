"""``DurableLLMOperator`` under Airflow's own task runner, against the stand-in model and answers written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from tests.integration.airflow.conftest import Airflow
from tests.integration.airflow.tried_twice import TWICE, dag_of
from tests.integration.llm.scripted_model import Asked, Reply, ScriptedModel, json_reply, text_reply

LLM = (
    TWICE
    + """
class Risk(BaseModel):
    level: int
    why: str = ""

Again = twice(DurableLLMOperator)
"""
)


@pytest.fixture(autouse=True)
def caller_ends_with_the_test() -> Iterator[None]:
    """Connections of one name lead elsewhere in each test; a process reads them once."""
    yield
    PydanticAICaller().close()


@pytest.fixture
def to_model(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def define(host: str, password: str) -> None:
        value = {"conn_type": "pydanticai", "host": host, "password": password, "extra": {"model": "openai:stand-in"}}
        monkeypatch.setenv("AIRFLOW_CONN_MODEL", json.dumps(value))

    return define


@pytest.fixture
def scripted(to_model: Callable[[str, str], None]) -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda asked: text_reply(asked, "fine")) as model:
        to_model(model.base_url, "sk-test-0123456789")
        yield model


def test_an_answer_is_paid_once_and_templates_are_rendered(
    airflow: Airflow, model_service: ModelService, to_model: Callable[[str, str], None]
) -> None:
    to_model(model_service.base_url, model_service.api_key)
    source = dag_of(
        "answer = Again(task_id='ask', prompt='The {{ params.what }} pays rent. It is due on the first.',"
        " llm_conn_id='model', system_prompt='Be brief.', params={'what': 'tenant'}).output",
        "@task",
        "def read(answer): seen.append(answer)",
        "read(answer)",
    )
    ran = airflow.run(source, head=LLM)
    assert ran.run.state == "success", ran.states
    first, read = ran.seen
    assert "tenant" in first
    assert read == first
    assert len(model_service.requests()) == 1
    rows = airflow.rows(
        "select s.kind, s.name, s.model, s.tokens_in > 0, e.state from aiflow.step s join aiflow.execution e "
        "using (execution_id) where run_id = %(run)s and dag_id = %(dag)s",
        ran,
    )
    assert rows == [("llm", "llm", "stand-in", True, "succeeded")]


def test_a_model_comes_back_as_its_class(airflow: Airflow, scripted: ScriptedModel) -> None:
    scripted.answer = lambda asked: called(asked, '{"level": 3, "why": "late\\u0000"}')
    source = dag_of("Again(task_id='ask', prompt='How risky is it?', llm_conn_id='model', output_type=Risk)")
    ran = airflow.run(source, head=LLM)
    assert ran.run.state == "success", ran.states
    [first] = ran.seen
    assert (type(first).__name__, first.level, first.why) == ("Risk", 3, "late\u0000")
    assert len(scripted.asked) == 1


def called(asked: Asked, arguments: str) -> Reply:
    reply = json.loads(text_reply(asked, "").body)
    name = asked.body["tools"][0]["name"]
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "status": "completed"}
    reply["output"] = [{**call, "arguments": arguments}]
    return json_reply(reply)


def test_a_failed_call_is_asked_again_and_costs_no_second_answer(
    airflow: Airflow, model_service: ModelService, to_model: Callable[[str, str], None]
) -> None:
    to_model(model_service.base_url, model_service.api_key)
    model_service.set_faults(Fault("cut", first=1))
    source = dag_of("Again(task_id='ask', prompt='The tenant pays rent on the first.', llm_conn_id='model')")
    ran = airflow.run(source, head=LLM)
    assert ran.run.state == "success", ran.states
    [error] = ran.seen
    assert type(error).__name__ == "ModelIncompleteError"
    assert [request.answered for request in model_service.requests()] == [False, True]


def test_a_gate_on_confidence_reads_the_recorded_one(airflow: Airflow, scripted: ScriptedModel) -> None:
    """A text model reports none, so the gate is closed, each time, for one price."""
    source = dag_of(
        "from airflow.providers.common.ai.operators.llm import DecisionPolicy",
        "Again(task_id='ask', prompt='Is it due?', llm_conn_id='model',"
        " decision_policy=DecisionPolicy(min_confidence=0.8, on_uncertain='fail'))",
    )
    ran = airflow.run(source, head=LLM)
    assert ran.run.state == "failed"
    assert [type(error).__name__ for error in ran.seen] == ["LowConfidenceError"]
    assert len(scripted.asked) == 1


def test_a_person_is_asked_about_the_recorded_answer(airflow: Airflow, scripted: ScriptedModel) -> None:
    source = dag_of(
        "class Asks(DurableLLMOperator):",
        "    def execute(self, context):",
        "        for _ in range(2):",
        "            try:",
        "                super().execute(context)",
        "            except BaseException as signal:",
        "                seen.append(signal)",
        "Asks(task_id='ask', prompt='Is it due?', llm_conn_id='model', require_approval=True)",
    )
    ran = airflow.run(source, head=LLM)
    assert [type(signal).__name__ for signal in ran.seen] == ["TaskAwaitingInput"] * 2
    assert all(signal.kwargs["generated_output"] == "fine" for signal in ran.seen)
    assert len(scripted.asked) == 1
    rows = airflow.rows("select state from aiflow.execution where run_id = %(run)s and dag_id = %(dag)s", ran)
    assert rows == [("succeeded",)]


def test_limits_on_usage_hold(airflow: Airflow, scripted: ScriptedModel) -> None:
    source = dag_of(
        "Again(task_id='ask', prompt='Is it due?', llm_conn_id='model', usage_limits={'output_tokens_limit': 50})"
    )
    ran = airflow.run(source, head=LLM)
    assert ran.run.state == "failed"
    assert [type(error).__name__ for error in ran.seen] == ["UsageLimitExceeded"]


def test_a_large_answer_stays_out_of_xcom(airflow: Airflow, scripted: ScriptedModel) -> None:
    scripted.answer = lambda asked: text_reply(asked, "long " * 9000)
    source = dag_of(
        "answer = DurableLLMOperator(task_id='ask', prompt='Tell it all.', llm_conn_id='model').output",
        "@task",
        "def read(answer): seen.append(len(answer))",
        "read(answer)",
    )
    ran = airflow.run(source, head=LLM)
    assert ran.run.state == "success", ran.states
    assert ran.seen == [45_000]
    assert airflow.xcom_sizes(ran)["ask"] < 300


def test_a_mapped_task_asks_for_each_prompt(airflow: Airflow, scripted: ScriptedModel) -> None:
    source = dag_of(
        "DurableLLMOperator.partial(task_id='ask', llm_conn_id='model').expand(prompt=['first one', 'second one'])"
    )
    ran = airflow.run(source, head=LLM)
    assert ran.run.state == "success", ran.states
    assert len(scripted.asked) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_clear": "sometimes"}, "on_clear must be 'auto', 'resume' or 'fresh'"),
        ({"timeout": -1}, "timeout must be a timedelta or a number of seconds above 0"),
    ],
)
def test_wrong_options_are_refused_at_parse(options: dict[str, Any], message: str) -> None:
    from airflow_aiflow.exceptions import FlowOptionError
    from airflow_aiflow.operators import DurableLLMOperator

    with pytest.raises(FlowOptionError, match=message):
        DurableLLMOperator(task_id="ask", prompt="?", llm_conn_id="model", **options)
