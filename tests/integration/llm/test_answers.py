"""What a caller gives back: text as it is, types as the author named them, what it cost."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from airflow_aiflow.exceptions import ModelOutputError
from airflow_aiflow.llm import usage
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.service import ModelService
from tests.integration.llm.conftest import Connect
from tests.integration.llm.scripted_model import Asked, Reply, ScriptedModel, json_reply, text_reply

PROMPT = "Lease. The tenant pays ninety euros on the first day of each month. This is a high risk."


class Assessment(BaseModel):
    risk: int
    reasons: list[str]


@dataclass
class Party:
    name: str


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Verdict(BaseModel):
    level: int

    @field_validator("level")
    @classmethod
    def known(cls, level: int) -> int:
        if level < 0:
            raise KeyError("the author's own error")
        return level


@pytest.fixture
def ask(caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, wire: str) -> Any:
    conn_id = connect("m", scripted.base_url, f"{wire}:gpt-5-mini")
    return lambda **options: caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, **options))


def says(*texts: str) -> Any:
    """Answer with these, in order; the last one again and again. A tool that the client offers is called with it."""
    left = list(texts)

    def answer(asked: Asked) -> Reply:
        text = left.pop(0) if len(left) > 1 else left[0]
        tools = asked.body.get("tools")
        return called(asked, text) if tools else text_reply(asked, text)

    return answer


def called(asked: Asked, arguments: str) -> Reply:
    reply = json.loads(text_reply(asked, "").body)
    if asked.chat:
        name = asked.body["tools"][0]["function"]["name"]
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        reply["choices"] = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    else:
        name = asked.body["tools"][0]["name"]
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "status": "completed"}
        reply["output"] = [{**call, "arguments": arguments}]
    return json_reply(reply)


@pytest.mark.parametrize(
    "text", ["ok\u0000tail", "e\u0301\u00e9 \ufeff\u202e", '{"amount": NaN}', " spaced \n", "ß" * 9000]
)
def test_text_comes_back_exactly(ask: Any, scripted: ScriptedModel, text: str) -> None:
    scripted.answer = says(text)
    assert ask().value == text
    assert len(scripted.asked) == 1


def test_a_prompt_goes_out_exactly(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, wire: str
) -> None:
    conn_id = connect("m", scripted.base_url, f"{wire}:gpt-5-mini")
    prompt = "a\u0000b e\u0301 \u00e9 \ufeff \U0001f600"
    caller.call(LlmRequest(prompt, llm_conn_id=conn_id, system_prompt="Be\u0000brief."))
    sent = json.dumps(scripted.asked[0].body, ensure_ascii=False)
    assert json.dumps(prompt, ensure_ascii=False) in sent
    assert json.dumps("Be\u0000brief.", ensure_ascii=False) in sent


@pytest.mark.parametrize(
    ("output_type", "said", "value"),
    [
        (Assessment, '{"risk": 3, "reasons": ["late"]}', Assessment(risk=3, reasons=["late"])),
        (
            list[Assessment],
            '{"response": [{"risk": 1, "reasons": []}, {"risk": 2, "reasons": ["x"]}]}',
            [Assessment(risk=1, reasons=[]), Assessment(risk=2, reasons=["x"])],
        ),
        (Party, '{"name": "Ada"}', Party("Ada")),
        (Colour, '{"response": "blue"}', Colour.BLUE),
        (bool, '{"response": false}', False),
        (list[str], '{"response": ["a", "b"]}', ["a", "b"]),
    ],
    ids=str,
)
def test_answers_are_of_the_type_that_was_named(
    ask: Any, scripted: ScriptedModel, output_type: Any, said: str, value: Any
) -> None:
    scripted.answer = says(said)
    answer = ask(output_type=output_type)
    assert answer.value == value
    assert type(answer.value) is type(value)
    assert answer.requests == len(scripted.asked) == 1


@pytest.mark.parametrize("output_type", [Assessment, list[Assessment], Party, Colour, bool], ids=str)
def test_the_stand_in_fills_every_kind_of_type(
    caller: PydanticAICaller, connect: Connect, stand_in: ModelService, wire: str, output_type: Any
) -> None:
    conn_id = connect("m", stand_in.base_url, f"{wire}:stand-in", password=stand_in.api_key)
    before = len(stand_in.requests())
    answer = caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, output_type=output_type))
    if isinstance(output_type, type):
        assert isinstance(answer.value, output_type)
    else:
        assert all(isinstance(one, Assessment) for one in answer.value)
    assert len(stand_in.requests()) - before == 1


def test_an_answer_that_does_not_fit_is_asked_for_again(ask: Any, scripted: ScriptedModel) -> None:
    scripted.answer = says('{"risk": "none"}', '{"risk": 3, "reasons": []}')
    answer = ask(output_type=Assessment)
    assert answer.value == Assessment(risk=3, reasons=[])
    assert answer.requests == len(scripted.asked) == 2
    assert (answer.usage.tokens_in, answer.usage.tokens_out) == (2000, 200)
    assert answer.usage.cost == 2 * (Decimal(1000) * Decimal("0.25") + Decimal(100) * 2) / 1_000_000


@pytest.mark.parametrize(("retries", "requests"), [(0, 1), (2, 3), (None, 2)])
def test_output_retries_end(ask: Any, scripted: ScriptedModel, retries: int | None, requests: int) -> None:
    scripted.answer = says('{"risk": "none"}')
    with pytest.raises(ModelOutputError) as caught:
        ask(output_type=Assessment, output_retries=retries)
    assert len(scripted.asked) == requests
    assert caught.value.usage is not None
    assert caught.value.usage.tokens_in == 1000 * requests, "what was paid is known, although there is no answer"
    assert "risk: Input should be a valid integer" in str(caught.value)
    assert "reasons: Field required" in str(caught.value)


def test_an_error_of_the_authors_validator_passes_unchanged(ask: Any, scripted: ScriptedModel) -> None:
    scripted.answer = says('{"level": -1}')
    with pytest.raises(KeyError, match="the author's own error") as caught:
        ask(output_type=Verdict)
    assert any("connection 'm'" in note for note in caught.value.__notes__)


def test_a_text_that_the_token_limit_cut_is_an_answer(
    ask: Any, scripted: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.answer = lambda asked: text_reply(asked, "half a sen", finish="length")
    answer = ask()
    assert (answer.value, answer.finish_reason) == ("half a sen", "length")
    assert "ended by 'length'" in caplog.text


def test_a_type_that_the_token_limit_cut_is_none(ask: Any, scripted: ScriptedModel) -> None:
    def cut(asked: Asked) -> Reply:
        reply = json.loads(called(asked, '{"risk": 3, "reas').body)
        if asked.chat:
            reply["choices"][0]["finish_reason"] = "length"
        else:
            reply |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return json_reply(reply)

    scripted.answer = cut
    with pytest.raises(ModelOutputError, match="raise max_tokens") as caught:
        ask(output_type=Assessment, output_retries=0)
    assert caught.value.usage is not None
    assert caught.value.usage.tokens_out == 100


def test_usage_names_who_answered_and_what_it_cost(ask: Any, scripted: ScriptedModel) -> None:
    scripted.answer = lambda asked: text_reply(asked, "yes", model="gpt-5-mini-2025-08-07")
    answer = ask()
    assert answer.conn_id == "m"
    assert answer.finish_reason == "stop"
    assert answer.usage.model == "gpt-5-mini-2025-08-07"
    assert answer.usage.response_id in {"chatcmpl-1", "resp_1"}
    assert (answer.usage.tokens_in, answer.usage.tokens_out) == (1000, 100)
    assert answer.usage.cost == Decimal("0.00045")


def test_an_unknown_price_is_unknown_and_said_once(
    ask: Any, scripted: ScriptedModel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_said", set())
    scripted.answer = lambda asked: text_reply(asked, "yes", model="house-model")
    assert [ask().usage.cost for _ in range(3)] == [None, None, None]
    assert caplog.text.count("no price is known for model 'house-model'") == 1


def test_settings_reach_the_server(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, wire: str
) -> None:
    conn_id = connect("m", scripted.base_url, f"{wire}:gpt-4o-mini")
    settings = {"temperature": 0.25, "extra_headers": {"Idempotency-Key": "k1"}, "timeout": 50}
    caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, model_settings=settings))
    assert scripted.asked[0].body["temperature"] == 0.25
    assert scripted.asked[0].headers["idempotency-key"] == "k1"


def test_many_threads_share_one_caller(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, wire: str
) -> None:
    def echo(asked: Asked) -> Reply:
        messages = asked.body["messages"] if asked.chat else asked.body["input"]
        content = messages[-1]["content"]
        return text_reply(asked, content if isinstance(content, str) else content[0]["text"])

    scripted.answer = echo
    conn_id = connect("m", scripted.base_url, f"{wire}:gpt-5-mini")
    prompts = [f"prompt {number}" for number in range(64)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda prompt: caller.call(LlmRequest(prompt, llm_conn_id=conn_id)).value, prompts))
    assert answers == prompts
    assert len(scripted.asked) == 64


def test_nothing_of_a_call_is_logged(ask: Any, scripted: ScriptedModel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scripted.answer = says("the answer's own words")
    ask(system_prompt="the system's own words")
    assert PROMPT not in caplog.text
    assert "own words" not in caplog.text
    assert "HTTP Request" not in caplog.text
