"""From Airflow's context to an attempt at work: what a durable task and ``Flow.from_context()`` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from airflow_aiflow.exceptions import FlowError, NoFlowError
from airflow_aiflow.hooks.aiflow import AiflowHook
from airflow_aiflow.hooks.asking import Door, door_of
from airflow_aiflow.hooks.attempt import attempt_from_context
from airflow_aiflow.hooks.heard import remember
from airflow_aiflow.hooks.host import AirflowHost, airflow_signals, ends_retries
from airflow_aiflow.hooks.supervisor import is_supervised
from airflow_aiflow.runtime.attempt_run import open_flow, run_attempt
from airflow_aiflow.runtime.process import die_with_parent
from airflow_aiflow.runtime.shutdown import Shutdown

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_aiflow.durable.attempt import Attempt, OnClear, Recovery
    from airflow_aiflow.durable.budget import Budget
    from airflow_aiflow.durable.lease import LeaseRules
    from airflow_aiflow.runtime.flow import Flow
    from airflow_aiflow.runtime.session import Services

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Work:
    """
    Hold one attempt of a running Airflow task, ready to start.

    :param attempt: which attempt it is.
    :param services: what it works with.
    :param host: the same as in ``services``.
    :param door: shows what the attempt asks a person; ``None``: it waits in the inbox alone.
    """

    attempt: Attempt
    services: Services
    host: AirflowHost
    shutdown: Shutdown = field(default_factory=Shutdown)
    door: Door | None = None

    def on_kill(self) -> None:
        """
        Answer a signal to end: what is in hand is finished and recorded if it ends in time, then the slot goes back.

        Goes at once where a later attempt is at work: the supervisor waits for nothing then.
        """
        self.host.end_if_superseded()
        self.shutdown.ask()

    def run(
        self,
        body: Callable[[Flow], R],
        *,
        lease: LeaseRules | None = None,
        step_timeout: float | None = None,
        compensate_on_failure: bool = False,
    ) -> R:
        """
        Run a task's body under a flow, in Airflow's terms.

        :param body: the author's code.
        :param lease: the task's own lease rules; ``None``: the deployment's.
        :param step_timeout: seconds for steps that name none.
        :param compensate_on_failure: whether effects are taken back where the task fails for good.
        """

        def remembered(flow: Flow) -> R:
            self._remember(flow)
            return body(flow)

        with self._in_airflow():
            return run_attempt(
                self.attempt,
                self.services,
                remembered,
                lease=lease,
                step_timeout=step_timeout,
                shutdown=self.shutdown,
                for_good=self._for_good if compensate_on_failure else None,
            )

    def _for_good(self, error: BaseException) -> bool:
        """
        Say whether Airflow makes no further try.

        Not covered: a retry policy of the author's that gives up before the tries are spent.
        """
        counters = self.attempt.counters
        return counters.try_number > counters.max_tries or ends_retries(error)

    @contextmanager
    def opened(self) -> Iterator[Flow]:
        """Open a flow for the code of a ``with`` block, in Airflow's terms."""
        with self._in_airflow(), open_flow(self.attempt, self.services, shutdown=self.shutdown) as flow:
            self._remember(flow)
            yield flow

    def _remember(self, flow: Flow) -> None:
        remember(str(self.attempt.counters.ti_id), self.services.ledger, flow.lease)

    def _in_airflow(self) -> AbstractContextManager[None]:
        show = None if self.door is None else self.door.park
        return airflow_signals(self.host, reschedule_delay=self.services.settings.reschedule_delay, show=show)


def work_from_context(
    context: Context,
    *,
    on_clear: OnClear | None = None,
    share_mapped: bool = True,
    recovery: Recovery = "auto",
    max_recoveries: int | None = None,
    budget: Budget | None = None,
    labels: Mapping[str, str] | None = None,
) -> Work:
    """
    Prepare the attempt that this process makes.

    :param context: Airflow's, of the running task.
    :param on_clear: the task's word; ``None``: the deployment's.
    :param share_mapped: whether a mapped task may take over what its siblings recorded before a clear.
    :param recovery: the task's word on recovery.
    :param max_recoveries: how often recovery may make it runnable again; ``None``: the deployment's word.
    :param budget: of the task's model calls; ``None``: no limit.
    :param labels: names and values to find its runs by.
    :raises AiflowConfigError: if a connection or an option is missing or wrong.
    """
    if is_supervised():
        # Else an orphan would go on beside the next try after its supervisor's death.
        die_with_parent()
    hook, host = AiflowHook(), AirflowHost(came_back=int(context.get("task_reschedule_count") or 0))
    services = hook.services(host)
    attempt = attempt_from_context(
        context,
        on_clear=on_clear or services.settings.on_clear,
        share_mapped=share_mapped,
        recovery=recovery,
        max_recoveries=max_recoveries,
        budget=budget,
        labels=labels,
    )
    door = door_of(context, attempt.execution, host, reschedule_delay=services.settings.reschedule_delay)
    return Work(attempt, services, host, door=door)


class FlowFromContext:
    """Open a flow inside a plain ``@task``; only as ``with Flow.from_context() as flow:``."""

    def __init__(self) -> None:
        self._block: AbstractContextManager[Flow] | None = None

    def __enter__(self) -> Flow:
        from airflow.sdk import get_current_context

        try:
            context = get_current_context()
        except RuntimeError as error:
            raise NoFlowError("Flow.from_context() works inside a running Airflow task alone") from error
        self._block = work_from_context(context).opened()
        return self._block.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        assert self._block is not None
        return self._block.__exit__(*error)

    def __getattr__(self, name: str) -> NoReturn:
        raise FlowError(
            f"Flow.from_context() has no '{name}' yet: it is opened by `with Flow.from_context() as flow:`, and "
            f"flow.{name} is called inside that block. Nothing ran"
        )


def flow_from_context() -> FlowFromContext:
    """Prepare the flow of the running task, to be opened by ``with``."""
    return FlowFromContext()
