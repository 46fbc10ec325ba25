"""``flow.llm_batch`` in memory, its provider played: what its author is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_aiflow.exceptions import AttemptParked, EffectConflictError, JobFailedError
from airflow_aiflow.llm.provider_batch import ProviderBatch
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask


def batch(prompts: list[str]) -> Callable[[Flow], Any]:
    return lambda flow: flow.llm_batch("story", prompts)


class Provider:
    """Be the provider: take batches and say how they stand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.submitted: list[list[str]] = []
        self.states: dict[str, str] = {}
        provider = self

        def submit(self: ProviderBatch, prompts: Any, key: str, fingerprint: str) -> str:
            provider.submitted.append(list(prompts))
            batch_id = f"batch-{len(provider.submitted)}"
            provider.states[batch_id] = "in_progress"
            return batch_id

        class Adapter:
            @staticmethod
            def get_batch(batch_id: str) -> Any:
                return SimpleNamespace(status=provider.states[batch_id], counts=None, error_message=None)

        @contextmanager
        def opened(self: ProviderBatch) -> Iterator[Any]:
            yield Adapter(), "gpt"

        monkeypatch.setattr(ProviderBatch, "provider", lambda *_args: "openai")
        monkeypatch.setattr(ProviderBatch, "submit", submit)
        monkeypatch.setattr(ProviderBatch, "_open", opened)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    return Provider(monkeypatch)


def parks(task: DurableTask, body: Callable[[Flow], Any]) -> None:
    with pytest.raises(AttemptParked):
        task.run(body)


def test_prompts_that_change_between_two_looks_pay_for_no_further_batch(provider: Provider) -> None:
    task = DurableTask()
    for _ in range(2):
        parks(task, batch(["a"]))
    for _ in range(2):
        with pytest.raises(EffectConflictError, match=r"batch batch-1 \(#\d+\) that an earlier attempt submitted"):
            task.run(batch(["a", "new row"]))
    assert provider.submitted == [["a"]]
    parks(task, batch(["a"]))  # it is still there to be waited for
    parks(task, lambda flow: flow.llm_batch("another", ["a", "new row"]))
    assert provider.submitted == [["a"], ["a", "new row"]]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_after_a_batch_that_came_to_nothing_other_prompts_are_submitted(provider: Provider, end: str) -> None:
    task = DurableTask()
    parks(task, batch(["a"]))
    provider.states["batch-1"] = end
    with pytest.raises(JobFailedError):
        task.run(batch(["a"]))
    parks(task, batch(["a", "mended"]))
    assert provider.submitted == [["a"], ["a", "mended"]]


@pytest.mark.parametrize("state", ["completed", "expired", None])
def test_a_batch_that_may_have_answers_is_not_paid_for_again(provider: Provider, state: str | None) -> None:
    task = DurableTask()
    parks(task, batch(["a"]))
    if state is None:
        del provider.states["batch-1"]  # the provider says nothing
    else:
        provider.states["batch-1"] = state
    with pytest.raises(EffectConflictError, match="aiflow effects release"):
        task.run(batch(["b"]))
    assert provider.submitted == [["a"]]


def test_batches_one_after_the_other_under_one_name_are_each_their_own(provider: Provider) -> None:
    def both(flow: Flow) -> Any:
        for prompt in "ab":
            with suppress(JobFailedError):
                flow.llm_batch("story", [prompt])

    task = DurableTask()
    parks(task, both)
    provider.states["batch-1"] = "failed"
    parks(task, both)
    assert provider.submitted == [["a"], ["b"]]
