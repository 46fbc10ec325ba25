"""The call of a flow that hands prompts to a provider's batch API; what does the work is imported where it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_aiflow.runtime.flow_outside import DAY, POLL_SECONDS, OutsideCalls

if TYPE_CHECKING:
    from airflow_aiflow.durable.artifact import ArtifactRef
    from airflow_aiflow.durable.policy import Duration
    from airflow_aiflow.runtime.model_calls import ModelCalls


class BatchCalls(OutsideCalls):
    """Be the part of a flow that uses batch APIs."""

    _models: ModelCalls

    def llm_batch(
        self,
        name: str,
        prompts: Iterable[str] | ArtifactRef,
        *,
        on_item_error: str | float = "fail",
        key: str | None = None,
        poll_interval: Duration = POLL_SECONDS,
        timeout: Duration = DAY,
        **options: Any,
    ) -> ArtifactRef:
        """
        Hand prompts to a provider's batch API once, and wait for the answers without a worker slot.

        :param name: the step's name.
        :param prompts: a list, a generator, or a stored file of JSON lines that are texts.
        :param on_item_error: ``fail``, ``skip``, or the share of prompts that may have no answer: theirs is ``null``.
        :param key: business key of the submission; ``None``: what decides the answers.
        :param poll_interval: between two looks; above 30 s the slot goes back meanwhile.
        :param timeout: from the submission, until the batch is cancelled and given up.
        :param options: of ``llm``: ``llm_conn_id``, ``model_id``, ``system_prompt``, ``output_type``,
            ``model_settings``, ``budget`` and ``version``.
        :return: the reference of a manifest, as ``map(results="shards")`` gives it.
        :raises BudgetExceededError: if a budget might not hold; nothing was submitted.
        :raises EffectConflictError: if an earlier attempt submitted a batch of other prompts, which is paid for.
        :raises JobFailedError: if the batch ended without answers, or not in its time.
        :raises ItemsFailedError: if more prompts have no answer than may.
        """
        from airflow_aiflow.runtime.llm_batches import BatchCall, run_llm_batch

        call = BatchCall(name, prompts, options, on_item_error, key, poll_interval, timeout)
        return run_llm_batch(self._session, self, self._models, call)


BatchCalls.llm_batch.__qualname__ = "Flow.llm_batch"
