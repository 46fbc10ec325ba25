"""``flow.llm_batch`` in memory, its provider played: what its author is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_aiflow.durable.job import JobStatus
from airflow_aiflow.exceptions import AttemptParked
from airflow_aiflow.llm.provider_batch import ProviderBatch
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask


def batch(prompts: list[str]) -> Callable[[Flow], Any]:
    return lambda flow: flow.llm_batch("story", prompts)


def test_prompts_that_change_between_two_looks_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[str] = []

    def submit(self: ProviderBatch, prompts: Any, key: str, fingerprint: str) -> str:
        submitted.append(key)
        return f"batch-{len(submitted)}"

    monkeypatch.setattr(ProviderBatch, "provider", lambda *_args: "openai")
    monkeypatch.setattr(ProviderBatch, "submit", submit)
    monkeypatch.setattr(ProviderBatch, "status", lambda *_args: JobStatus("in_progress"))
    task, warned = DurableTask(), "submits another batch"
    for prompts, told in ((["a"], 0), (["a"], 0), (["a", "new row"], 1), (["a", "new row"], 1)):
        with pytest.raises(AttemptParked):
            task.run(batch(prompts))
        assert sum(warned in line for line in task.host.warnings) == told
    assert len(submitted) == 2
