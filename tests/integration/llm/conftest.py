"""A caller whose clients end with the test, and connections that live in the environment alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.ports import LOOPBACK, free_port
from airflow_aiflow.local.service import ModelService
from tests.integration.llm.scripted_model import Asked, Reply, ScriptedModel, text_reply

#: Both wire formats of OpenAI, by the prefix of a model's name.
WIRES = ("openai-chat", "openai")

Connect = Callable[..., str]


@pytest.fixture
def caller() -> Iterator[PydanticAICaller]:
    caller = PydanticAICaller()
    yield caller
    caller.close()


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Define a connection: ``connect(conn_id, host, model)``; further keywords go into its extra."""

    def define(conn_id: str, host: str, model: str, *, password: str = "sk-test-0123456789", **extra: Any) -> str:
        value = {"conn_type": "pydanticai", "host": host, "password": password, "extra": {"model": model, **extra}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(value))
        return conn_id

    return define


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stand_in_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with ModelService(tmp_path_factory.mktemp("stand-in") / "model") as service:
        yield service


@pytest.fixture
def stand_in(stand_in_service: ModelService) -> Iterator[ModelService]:
    """Give the module's stand-in model, well behaved at the start."""
    stand_in_service.set_faults()
    yield stand_in_service
    stand_in_service.set_faults()


@pytest.fixture
def scripted() -> Iterator[ScriptedModel]:
    """Give a model that says ``fine``; set its ``answer`` to have it say something else."""

    def fine(asked: Asked) -> Reply:
        return text_reply(asked, "fine")

    with ScriptedModel(fine) as model:
        yield model


@pytest.fixture
def nobody() -> str:
    """Give the address of a port where nothing listens."""
    return f"http://{LOOPBACK}:{free_port()}/v1"
