"""What people read of a run: its executions and recorded steps as plain values. Nothing decides on these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId


@dataclass(frozen=True, slots=True)
class EffectCount:
    """
    Count an execution's effects of one name in one state.

    :param state: a word of ``EffectState``.
    :param open_numbers: of the intents that have no outcome.
    """

    name: str
    state: str
    count: int
    open_numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """Name a question that an execution waits for."""

    number: int
    kind: str
    subject: str


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """
    Show an execution as it stands.

    :param sign: of its last attempt: a word of ``Sign``.
    :param on_clear: what the last attempt was told to do after a clear; ``None``: an older release did not say.
    :param live: whether an attempt holds the lease.
    :param steps: recorded in its generation; so are calls, tokens and cost.
    :param unpriced: model calls whose price is unknown.
    :param labels: what the author says of the task.
    """

    execution_pk: int
    execution: ExecutionId
    state: ExecutionState
    generation: int
    heard: bool
    attempt: int
    sign: str
    on_clear: OnClear | None
    started_at: datetime
    finished_at: datetime | None
    pause_reason: str | None
    live: bool
    steps: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    effects: tuple[EffectCount, ...] = field(default=())
    questions: tuple[OpenQuestion, ...] = field(default=())
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """
    Sum up a run's executions.

    :param live: how many have an attempt at work.
    :param running: how many are neither parked nor ended.
    :param paused: how many are parked.
    :param pause_reason: of one of those.
    """

    live: int = 0
    running: int = 0
    paused: int = 0
    pause_reason: str | None = None


def summary(views: Iterable[ExecutionView]) -> RunSummary:
    """
    Sum up executions of one run.

    :param views: all of them.
    """
    found = list(views)
    paused = [view for view in found if view.state is ExecutionState.PAUSED]
    return RunSummary(
        live=sum(view.live for view in found),
        running=sum(view.state is ExecutionState.RUNNING for view in found),
        paused=len(paused),
        pause_reason=next((view.pause_reason for view in paused if view.pause_reason), None),
    )


@dataclass(frozen=True, slots=True)
class SpendingView:
    """
    Show what a step of a task, or a whole run, spent on model calls, over all attempts and generations.

    :param name: of the run; of a step: its own.
    :param task_id: of a step; ``None``: it is a run.
    :param began_at: of a run.
    :param cost: US dollars, of the calls whose price is known.
    :param unpriced: calls whose price is unknown.
    :param wasted: calls that were paid and gave nothing to record, such as an answer that does not fit its type.
    """

    name: str
    calls: int
    tokens_in: int
    tokens_out: int
    cost: Decimal
    unpriced: int
    wasted: int
    task_id: str | None = None
    began_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StepView:
    """
    Show a recorded step, without its result.

    :param attempt: the running number of the attempt that recorded it.
    :param size: bytes in the ledger's row; ``None``: it is an artifact.
    """

    task_id: str
    map_index: int
    kind: str
    name: str
    depth: int
    attempt: int
    ended_at: datetime
    duration_ms: float
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None
    size: int | None
