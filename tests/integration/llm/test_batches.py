"""``flow.llm_batch`` against the stand-in's batch API: submitted once, whatever happens to the attempts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    AttemptParked,
    FlowOptionError,
    ItemsFailedError,
    JobFailedError,
)
from airflow_aiflow.llm import provider_batch
from airflow_aiflow.llm.provider_batch import ProviderBatch
from airflow_aiflow.local.batch_api import BATCHES, FILES
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.integration.llm.conftest import Connect

PROMPTS = [f"Sentence {n} of the story is short." for n in range(30)]


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def task(dsn: str, connect: Connect, stand_in: ModelService, request: pytest.FixtureRequest) -> Iterator[DurableTask]:
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    ledger = PostgresLedger.connect(dsn)
    yield DurableTask(ledger=ledger, clock=SystemClock(), run_id=request.node.name)
    ledger.close()


@pytest.fixture
def submitted(stand_in: ModelService) -> Callable[[], int]:
    """Give what counts the batches that reached the provider in this test."""
    before = len(stand_in.requests())
    return lambda: sum(one.fields["path"] == BATCHES for one in stand_in.requests()[before:])


def batch(prompts: Any = PROMPTS, **options: Any) -> Callable[[Flow], ArtifactRef]:
    return lambda flow: flow.llm_batch("story", prompts, **({"poll_interval": 0.01} | options))


def answers(task: DurableTask, manifest: ArtifactRef) -> list[Any]:
    def lines(ref: ArtifactRef) -> bytes:
        with task.store.open_file(bytes.fromhex(ref.sha256)) as stream:
            return stream.read()

    found = json.loads(lines(manifest))
    fields = ArtifactRef.__dataclass_fields__
    shards = [ArtifactRef.from_plain({name: shard[name] for name in fields}) for shard in found["shards"]]
    return [json.loads(line) for shard in shards for line in lines(shard).splitlines()]


def test_a_batch_is_submitted_once_and_its_answers_come_in_order(
    task: DurableTask, submitted: Callable[[], int], stand_in: ModelService
) -> None:
    manifest = task.run(batch(system_prompt="Repeat.", model_settings={"temperature": 0}))
    given = answers(task, manifest)
    assert len(given) == len(PROMPTS)
    assert all(f"Sentence {n} " in answer for n, answer in enumerate(given))
    assert task.run(batch(system_prompt="Repeat.", model_settings={"temperature": 0})) == manifest, "a retry replays"
    assert submitted() == 1
    assert task.host.lines[-1].startswith("aiflow: done: ")


def test_what_a_batch_cost_is_known_by_the_prices_for_batches(
    task: DurableTask, connect: Connect, stand_in: ModelService
) -> None:
    connect("priced", stand_in.base_url, "openai-chat:gpt-5-mini", password=stand_in.api_key)
    spent: list[Any] = []

    def body(flow: Flow) -> ArtifactRef:
        manifest = batch(llm_conn_id="priced")(flow)
        spent.append(flow.spent)
        return manifest

    _until_done(task, body)
    [found] = spent
    assert found.tokens_in > 0
    price = Decimal("0.125") * found.tokens_in + found.tokens_out  # half of a single call's, in US dollars a million
    assert (found.cost, found.unpriced) == (price / 1_000_000, 0)


def test_a_waiting_batch_holds_no_slot_and_the_next_look_attaches(
    task: DurableTask, submitted: Callable[[], int]
) -> None:
    with pytest.raises(AttemptParked) as parked:
        task.run(batch(poll_interval=60))
    assert parked.value.delay == pytest.approx(60, abs=5)
    task.same_again()
    assert len(answers(task, task.run(batch(poll_interval=60)))) == len(PROMPTS)
    assert submitted() == 1


@pytest.mark.parametrize("contains", ["input_file_id"])
def test_a_submission_whose_answer_was_cut_is_found_by_its_key(
    task: DurableTask, submitted: Callable[[], int], stand_in: ModelService, contains: str
) -> None:
    stand_in.set_faults(Fault("cut", first=1, contains=contains))
    manifest = _until_done(task, batch())
    assert len(answers(task, manifest)) == len(PROMPTS)
    assert submitted() == 1


def test_a_submission_that_was_surely_refused_is_made_again(
    task: DurableTask, submitted: Callable[[], int], stand_in: ModelService
) -> None:
    stand_in.set_faults(Fault("status", first=1, status=429, retry_after="0", contains="input_file_id"))
    assert len(answers(task, _until_done(task, batch()))) == len(PROMPTS)
    assert submitted() == 2, "the refused one and the one that counts"


def _until_done(task: DurableTask, body: Callable[[Flow], ArtifactRef]) -> ArtifactRef:
    """Run attempt after attempt, as Airflow does, while the task parks or fails."""
    for _ in range(4):
        try:
            return task.run(body)
        except AttemptParked:
            task.same_again()
        except Exception as error:  # the provider's: Airflow's retry follows
            print(type(error).__name__, error)
    raise AssertionError(f"it never ended: {task.host.lines[-5:]}")


def test_other_prompts_and_a_fresh_start_are_other_batches(task: DurableTask, submitted: Callable[[], int]) -> None:
    task.run(batch())
    task.cleared()
    first = task.run(batch())
    assert submitted() == 2, "a clear of a seen success starts anew"
    task.hears = False
    other = task.run(batch([*PROMPTS, "One more sentence."]))
    assert submitted() == 3, "the answers of the one before were taken"
    assert any("submits another batch" in line for line in task.host.warnings)
    assert len(answers(task, other)) == len(answers(task, first)) + 1


def test_prompts_without_an_answer(task: DurableTask, submitted: Callable[[], int], stand_in: ModelService) -> None:
    stand_in.set_faults(Fault("status", status=400, contains="Sentence 7 "))
    with pytest.raises(ItemsFailedError, match=r"1 of 30 prompts have no answer.*prompt 7: errored: told to fail"):
        task.run(batch())
    with pytest.raises(ItemsFailedError):
        task.run(batch(on_item_error=0.01))
    given = answers(task, task.run(batch(on_item_error=0.05)))
    assert given[7] is None
    assert sum(answer is None for answer in given) == 1
    assert submitted() == 1, "no attempt submits again"


class Line(BaseModel):
    """An answer."""

    text: str
    good: bool


def test_structured_answers_are_validated(task: DurableTask) -> None:
    given = answers(task, task.run(batch(output_type=Line)))
    assert all(Line.model_validate(answer) for answer in given)


def test_an_answer_that_does_not_fit_is_a_failed_prompt(task: DurableTask, monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(BaseModel):
        text: str
        length: int

    real = provider_batch.answer_schema
    monkeypatch.setattr("airflow_aiflow.runtime.llm_batches.answer_schema", lambda _type: real(Line))
    with pytest.raises(ItemsFailedError, match=r"30 of 30 prompts have no answer.*the answer does not fit"):
        task.run(batch(output_type=Strict))


def test_no_prompts_and_prompts_from_a_file(task: DurableTask, submitted: Callable[[], int]) -> None:
    assert answers(task, task.run(batch([]))) == []
    assert submitted() == 0

    def from_file(flow: Flow) -> ArtifactRef:
        stored = flow.save(b"".join(json.dumps(prompt).encode() + b"\n" for prompt in PROMPTS), name="p.jsonl")
        return flow.llm_batch("story", stored, poll_interval=0.01)

    assert len(answers(task, task.run(from_file))) == len(PROMPTS)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"rate_limit": "openai"}, "rate_limit= has no meaning here"),
        ({"reuse": 60}, "reuse= has no meaning here"),
        ({"on_item_error": "never"}, "on_item_error must be"),
        ({"prompts": ["a", " "]}, "prompt 1 is empty"),
        ({"prompts": ["a"] * 50_001}, "at most 50000 requests"),
        ({"model_id": "nobody:x"}, "can't be used for batches"),
        ({"llm_conn_id": "nowhere"}, "a batch needs a connection"),
    ],
)
def test_what_cant_work_is_refused_before_anything_is_submitted(
    task: DurableTask, submitted: Callable[[], int], stand_in: ModelService, options: dict[str, Any], wrong: str
) -> None:
    before = len(stand_in.requests())
    with pytest.raises((FlowOptionError, AiflowConfigError), match=wrong):
        task.run(batch(**options))
    assert len(stand_in.requests()) == before


def test_an_unknown_option_and_a_prompt_that_is_no_text(task: DurableTask) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        task.run(batch(colour="red"))
    with pytest.raises(TypeError, match="prompt 1 must be a str"):
        task.run(batch(["a", 2]))


def test_a_batch_that_takes_too_long_is_cancelled_and_its_task_says_how_to_go_on(
    task: DurableTask, submitted: Callable[[], int]
) -> None:
    with pytest.raises(JobFailedError, match=r"did not end within.*it was cancelled.*effects release"):
        task.run(batch(poll_interval=60, timeout=0.000001))
    with pytest.raises(JobFailedError, match="ended as 'cancelled'"):
        task.run(batch(poll_interval=60))
    assert submitted() == 1


def test_a_batch_that_the_provider_has_forgotten_is_not_submitted_again_by_itself(
    task: DurableTask, stand_in: ModelService, submitted: Callable[[], int]
) -> None:
    """I25: what the provider kept is gone between two looks."""
    with pytest.raises(AttemptParked):
        task.run(batch(poll_interval=60))
    stand_in.stop()
    stand_in.start()
    task.same_again()
    with pytest.raises(JobFailedError, match=r"knows no such batch any more.*effects release"):
        task.run(batch(poll_interval=60))
    assert submitted() == 1


def test_a_lost_batch_among_too_many_is_not_taken_for_one_that_is_not_there(
    task: DurableTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task.run(batch())
    task.run(batch(["another"]))
    task.run(batch(["and another"]))
    ours = ProviderBatch("pydanticai_default", None, "", {}, "", None)
    assert ours.find("nobody's") is None
    monkeypatch.setattr(provider_batch, "MOST_LISTED", 1)
    with pytest.raises(LookupError, match="more than 1 batches"):
        ours.find("nobody's")


def test_the_file_of_prompts_is_uploaded_once(task: DurableTask, stand_in: ModelService) -> None:
    before = len(stand_in.requests())
    task.run(batch())
    assert [one.fields["path"] for one in stand_in.requests()[before:]] == [FILES, BATCHES]
