"""
common-ai's ``AgentOperator``, with every request and every tool call recorded.

Only the agent's run is under a flow: what comes after it in a task (a review by people, the push to XCom) may fail and
be repeated, and what was paid for is replayed. The agent is built as common-ai builds it, with its hook, masking and
logging; its own journal is left off, for ours takes its place.

Not covered: an answer that a person has reviewed is not known to have been seen, so that ``on_clear="auto"`` replays it
after a clear; use ``on_clear="fresh"`` to have it asked again.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.ai.operators.agent import AgentOperator

from airflow_aiflow.durable.budget import read_budget
from airflow_aiflow.durable.limit import check_limit_name
from airflow_aiflow.durable.policy import seconds
from airflow_aiflow.hooks.attempt import check_on_clear
from airflow_aiflow.hooks.persons import AsksPersons
from airflow_aiflow.links import with_timeline

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic_ai import Agent
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.usage import RunUsage, UsageLimits

    from airflow_aiflow.durable.attempt import OnClear
    from airflow_aiflow.durable.budget import Budget
    from airflow_aiflow.hooks.context import Work

#: Name of the agent's run.
RUN = "agent"


class DurableAgentOperator(AsksPersons, AgentOperator):
    """
    Run an agent whose requests are paid once and whose marked tools act once, however often the task is tried.

    Takes what ``AgentOperator`` takes, and:

    :param durable: taken and of no effect: it always is, and no toolset needs an id.
    :param on_clear: what a cleared task does: ``auto``, ``resume`` or ``fresh``; ``None``: the deployment's word.
    :param budget: what the requests may cost, over all attempts: US dollars, tokens, or both.
    :param rate_limit: the name of a limit that ``aiflow limits set`` made: each request waits for it.
    :param reuse: how old an answer of the model may be that another run of the DAG was given in this task for the same
        conversation; ``None``: not asked. Tools are called all the same.
    :param step_timeout: seconds, or a ``timedelta``, for one tool call; ``None``: no limit.
    """

    operator_extra_links = with_timeline(AgentOperator)

    def __init__(
        self,
        *,
        durable: bool = True,
        on_clear: OnClear | None = None,
        budget: float | str | Budget | None = None,
        rate_limit: str | None = None,
        reuse: timedelta | float | None = None,
        step_timeout: timedelta | float | None = None,
        **kwargs: Any,
    ) -> None:
        self.on_clear = None if on_clear is None else check_on_clear(on_clear)
        self.budget = read_budget(budget)
        self.rate_limit = None if rate_limit is None else check_limit_name(rate_limit)
        self.reuse = None if reuse is None else seconds(reuse, "reuse")
        self.step_timeout = None if step_timeout is None else seconds(step_timeout, "step_timeout")
        super().__init__(**kwargs)
        self._work: Work | None = None

    def execute(self, context: Context) -> Any:
        """Replay or run the agent, then do with its output what ``AgentOperator`` does."""
        from airflow_aiflow.decorators.body import for_xcom

        work = self._start(context)
        return for_xcom(super().execute(context), work, multiple_outputs=False)

    def resume_after_tool_approval(self, context: Context, *args: Any, **kwargs: Any) -> Any:
        """Go on after the approval that common-ai's own ``requires_approval`` asked for."""
        self._start(context)
        return super().resume_after_tool_approval(context, *args, **kwargs)

    def _start(self, context: Context) -> Work:
        from airflow_aiflow.hooks.context import work_from_context

        self._work = work_from_context(context, on_clear=self.on_clear, budget=self.budget)
        return self._work

    def on_kill(self) -> None:
        """Let what is in hand bring its result; then the slot goes back."""
        if self._work is not None:
            self._work.on_kill()

    def run_agent_sync(self, agent: Agent[Any, Any], user_prompt: Any, **options: Any) -> AgentRunResult[Any]:
        """Run the agent under the flow of this attempt."""
        from airflow_aiflow.runtime.agents import run_agent

        assert self._work is not None
        self._only_where_not_served(agent)
        ours = {"rate_limit": self.rate_limit, "reuse": self.reuse}
        return self._work.run(
            lambda flow: run_agent(flow, RUN, agent, user_prompt, **ours, **options), step_timeout=self.step_timeout
        )

    @staticmethod
    def _only_where_not_served(agent: Agent[Any, Any]) -> None:
        """Ask a connection's next model only where the one before can't have billed."""
        from pydantic_ai.models.fallback import FallbackModel

        from airflow_aiflow.llm.agent_request import chained

        if isinstance(agent.model, FallbackModel):
            agent.model = chained(agent.model.models)

    def _build_usage_budget(self, context: Context, usage_limits: UsageLimits | None, *, ti: Any) -> None:
        """Keep no count of earlier attempts: what they recorded is replayed, and counts in the run itself."""

    def _report_failed_run(self, context: Context, run_usage: RunUsage, *, run_id: str | None = None) -> None:
        """Report nothing where the task only gives its slot back."""
        from airflow.sdk.exceptions import AirflowRescheduleException, TaskAwaitingInput, TaskDeferred

        if not isinstance(sys.exception(), AirflowRescheduleException | TaskAwaitingInput | TaskDeferred):
            super()._report_failed_run(context, run_usage, run_id=run_id)
