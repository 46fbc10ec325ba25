"""
common-ai's ``LLMOperator``, with its model call recorded.

Only the call itself runs under a flow: whatever comes after it in a task (a gate on the model's confidence, a person's
approval, the push to XCom) may fail and be repeated, and the answer that was paid for is replayed.

Not covered: an answer that a person has approved is not known to have been seen, so that ``on_clear="auto"`` replays it
after a clear; use ``on_clear="fresh"`` to have it asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.ai.operators.llm import LLMOperator

from airflow_aiflow.durable.policy import seconds
from airflow_aiflow.hooks.attempt import check_on_clear
from airflow_aiflow.hooks.persons import AsksPersons
from airflow_aiflow.links import with_timeline
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic_ai import Agent
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.usage import UsageLimits

    from airflow_aiflow.durable.attempt import OnClear
    from airflow_aiflow.hooks.context import Work
    from airflow_aiflow.runtime.flow import Flow

#: Name of the one step.
STEP = "llm"

#: Seconds for the whole call: what the clients allow for one read, so that a task that came from ``LLMOperator`` still
#: gets the long answers that it got.
CALL_TIMEOUT = 600.0

#: What the gate on the model's confidence reads of a provider's details.
CONFIDENCE = ("confidence", "probabilities")


@dataclass(frozen=True)
class _Response:
    """Be what common-ai reads of a model's response."""

    model_name: str | None
    provider_details: dict[str, Any]


@dataclass(frozen=True)
class _Result:
    """Be what common-ai reads of a run's result."""

    output: Any = field(repr=False)
    response: _Response


class DurableLLMOperator(AsksPersons, LLMOperator):
    """
    Call a model once for the same prompt, model and settings, however often the task is tried.

    Takes what ``LLMOperator`` takes, and:

    :param on_clear: what a cleared task does: ``auto``, ``resume`` or ``fresh``; ``None``: the deployment's word.
    :param timeout: seconds, or a ``timedelta``, for the whole model call, output retries and fallbacks included.
    :param reuse: how old the answer may be that another run of the DAG was given in this task; ``None``: not asked.
    """

    operator_extra_links = with_timeline(LLMOperator)

    def __init__(
        self,
        *,
        on_clear: OnClear | None = None,
        timeout: timedelta | float = CALL_TIMEOUT,
        reuse: timedelta | float | None = None,
        **kwargs: Any,
    ) -> None:
        self.on_clear = None if on_clear is None else check_on_clear(on_clear)
        self.call_timeout = seconds(timeout, "timeout")
        self.reuse = None if reuse is None else seconds(reuse, "reuse")
        super().__init__(**kwargs)
        self._work: Work | None = None

    def execute(self, context: Context) -> Any:
        """Replay the answer or ask for it, then do with it what ``LLMOperator`` does."""
        from airflow_aiflow.decorators.body import for_xcom
        from airflow_aiflow.hooks.context import work_from_context

        self._work = work_from_context(context, on_clear=self.on_clear)
        output = super().execute(context)
        return for_xcom(output, self._work, multiple_outputs=False)

    def on_kill(self) -> None:
        """Let a call in flight bring its answer, which is paid for; then the slot goes back."""
        if self._work is not None:
            self._work.on_kill()

    def _create_agent(self, *, output_type: Any, instructions: str) -> Agent[object, Any]:
        """Build nothing: a replay needs no connection, and the recorded call builds its own agent."""
        return None  # type: ignore[return-value]

    def _run_llm(
        self, context: Context, agent: Agent[Any, Any], user_prompt: Any, *, usage_limits: UsageLimits | None
    ) -> AgentRunResult[Any]:
        assert self._work is not None
        ti = context["task_instance"] if usage_limits is not None else None
        self._usage_budget = self._build_usage_budget(context, usage_limits, ti=ti)
        run_options: dict[str, Any] = {}
        if usage_limits is not None:
            run_options["usage_limits"] = usage_limits
        if self._usage_budget is not None:
            run_options["usage"] = self._usage_budget.load()
        request = self._request(user_prompt, run_options)
        try:
            recorded = self._work.run(lambda flow: self._recorded(flow, request))
        finally:
            if self._usage_budget is not None:
                self._usage_budget.save(run_options["usage"])
        details = {name: recorded[name] for name in CONFIDENCE if recorded[name] is not None}
        result: Any = _Result(recorded["output"], _Response(recorded["model"], details))
        return result  # type: ignore[no-any-return]

    def _request(self, prompt: str, run_options: dict[str, Any]) -> LlmRequest:
        fallbacks = self.fallback_conn_ids
        return LlmRequest(
            prompt=prompt,
            output_type=self.output_type,
            llm_conn_id=self.llm_conn_id,
            model_id=self.model_id,
            system_prompt=self.system_prompt,
            model_settings=dict(self.model_settings) if self.model_settings else None,
            output_retries=self.output_retries,
            fallback_conn_ids=None if fallbacks is None else tuple(fallbacks),
            timeout=self.call_timeout,
            run_options=run_options,
        )

    def _recorded(self, flow: Flow, request: LlmRequest) -> dict[str, Any]:
        from itertools import zip_longest

        from airflow_aiflow.durable.fingerprint import print_parts
        from airflow_aiflow.llm.call import OUTPUT_TYPE, PART_NAMES
        from airflow_aiflow.llm.retry import call_with_retries
        from airflow_aiflow.runtime.steps import Ran, StepCall, run_step

        assert self._work is not None
        services = self._work.services

        def ask() -> Ran:
            assert services.models is not None
            answer = call_with_retries(services.models(), request, clock=services.clock)
            return Ran(_plain(answer), answer.usage)

        parts = zip_longest(PART_NAMES, request.fingerprint_parts(), fillvalue=OUTPUT_TYPE)
        printed = print_parts([("kind", "llm operator"), *parts])
        recorded: dict[str, Any] = run_step(
            flow._session,
            StepCall(
                kind="llm",
                name=STEP,
                fingerprint=printed.digest,
                printed=printed,
                run=ask,
                as_type={"output": self.output_type},
                reuse=self.reuse,
            ),
        )
        return recorded


def _plain(answer: LlmAnswer) -> dict[str, Any]:
    """Give what is recorded: the answer, and what common-ai reads beside it."""
    return {
        "output": answer.value,
        "model": answer.usage.model,
        **{name: answer.details.get(name) for name in CONFIDENCE},
    }
