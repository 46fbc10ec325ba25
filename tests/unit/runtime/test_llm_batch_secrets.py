"""No prompt of ``flow.llm_batch`` takes a secret into the artifact store."""

from __future__ import annotations

import pytest

from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.llm.provider_batch import ProviderBatch
from airflow_aiflow.testing import DurableTask


def test_a_prompt_with_a_secret_is_refused_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProviderBatch, "provider", lambda *_args: "openai")
    monkeypatch.setattr(ProviderBatch, "submit", lambda *_args: pytest.fail("it was submitted"))
    task = DurableTask(secrets=("sk-secret",))
    with pytest.raises(FlowOptionError, match="prompt 1 holds a secret"):
        task.run(lambda flow: flow.llm_batch("story", ["a", "use sk-secret"]))
