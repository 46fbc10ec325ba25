"""The JSON of executions: a run's list, a timeline, units of a map, one step, a comparison."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, Field

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.step_diff import Verdict
from airflow_aiflow.durable.timeline import AttemptOutcome, StepState

Owner = Literal["alive", "verified dead", "presumed gone"]


class ExecutionName(BaseModel):
    """One task instance, over all its tries."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = Field(description="-1: the task is not mapped.")


class Spending(BaseModel):
    """Model calls and their cost."""

    calls: int
    cost: Decimal = Field(description="US dollars, of those calls whose price is known.")


class Saved(BaseModel):
    """What did not have to be paid again."""

    replay: Spending = Field(description="Recorded calls that later attempts found, once for each of them.")
    reuse: Spending = Field(description="Answers of other runs.")


class EffectSums(BaseModel):
    """An execution's effects, counted."""

    done: int
    in_doubt: int
    other: int


class QuestionLine(BaseModel):
    """A question that a task waits for."""

    number: int = Field(description="In the inbox.")
    kind: str
    subject: str


class ExecutionModel(BaseModel):
    """An execution as it stands; sums are those of its current generation."""

    task_id: str
    map_index: int
    state: ExecutionState
    generation: int
    attempts: int
    sign: str = Field(
        description="How the last attempt came about: first, same, retry, ambiguous, cleared, made_again."
    )
    started_at: datetime = Field(description="When it was last begun, cleared or made again.")
    finished_at: datetime | None
    pause_reason: str | None
    live: bool = Field(description="Whether an attempt is at work. Running and not live: it was interrupted.")
    heard: bool = Field(description="Whether Airflow is known to have heard of the success.")
    steps: int
    calls: int
    tokens_in: int
    tokens_out: int
    cost: Decimal
    unpriced: int = Field(description="Calls whose price is unknown.")
    saved: Saved
    effects: EffectSums
    questions: list[QuestionLine]
    recoveries: int
    labels: dict[str, str] = Field(default_factory=dict, description="What its author says of the task.")


class RunTotals(BaseModel):
    """Sums over a run's executions."""

    executions: int
    steps: int
    calls: int
    tokens_in: int
    tokens_out: int
    cost: Decimal
    unpriced: int
    saved: Saved
    in_doubt: int
    recoveries: int


class RunModel(BaseModel):
    """A run's executions, in the order in which they began; empty: no durable task of it ever ran."""

    dag_id: str
    run_id: str
    items: list[ExecutionModel]
    totals: RunTotals


class GenerationModel(BaseModel):
    """A generation: 1, and one more for each fresh start."""

    generation: int
    started_at: datetime
    why: str = Field(description="The sign of the attempt that began it.")


class Paid(Spending):
    """Model calls of a generation, those that gave nothing to record among them."""

    unpriced: int
    tokens_in: int
    tokens_out: int


class Head(BaseModel):
    """The sums above a timeline."""

    paid: Paid
    saved_replay: Spending
    saved_reuse: Spending
    effects_done: int
    in_doubt: int


class AttemptModel(BaseModel):
    """An attempt. Several with one number are one try of Airflow's that was interrupted."""

    attempt: int
    fence: int = Field(description="Grows with each take-over: steps and effects name their attempt by it.")
    generation: int
    sign: str
    try_number: int
    started_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome
    reason: str | None = Field(description="Such as the step in hand when it was lost.")
    host: str
    pid: int


STEP_COLUMNS = (
    "key",
    "kind",
    "name",
    "map",
    "item",
    "attempt",
    "started_at_ms",
    "ended_at_ms",
    "state",
    "cost",
    "calls",
    "fence",
)

StepCells = tuple[str, str, str, str | None, str | None, int, int, int, StepState, Decimal | None, int, int]


class StepTable(BaseModel):
    """Steps as rows, compact; the columns say what stands where."""

    columns: list[str] = Field(examples=[list(STEP_COLUMNS)])
    rows: list[StepCells] = Field(
        description="Times are milliseconds since 1970. `replayed`: recorded before the last attempt; `reused`: "
        "another run, or map index, had it, and its time is that of the copy."
    )


class MapModel(BaseModel):
    """A map as one bar; its units are given by /units."""

    name: str
    units: int
    steps: int
    done: int
    failed: int
    calls: int
    cost: Decimal
    first_at: datetime
    last_at: datetime


class EffectBar(BaseModel):
    """An effect of a timeline."""

    number: int = Field(description="Of the call that counts.")
    name: str
    key: str | None = Field(description="The business key; null: the one call of its name.")
    state: EffectState
    begun_at: datetime
    settled_at: datetime | None
    attempt: int
    fence: int
    certainty: Owner | None = Field(description="Of a call without an outcome: whether somebody is at work on it.")


class TimelineModel(BaseModel):
    """An execution's life; units of maps are not among the rows."""

    execution: ExecutionModel
    generation: int = Field(description="Whose steps these are.")
    generations: list[GenerationModel]
    head: Head
    attempts: list[AttemptModel]
    steps: StepTable
    maps: list[MapModel]
    effects: list[EffectBar]
    truncated: bool = Field(description="Whether there is more than one answer holds.")


class FailedUnit(BaseModel):
    """An item of a map that has no result."""

    number: int = Field(description="Its place in the list, from 0.")
    key: str | None
    state: Literal["at_work", "failed", "dead", "retry"]
    failures: int
    kills: int = Field(description="Processes that were lost while it was at work.")
    error: str | None
    at: datetime | None


class UnitModel(BaseModel):
    """A unit of a map: an item, or a step inside of one."""

    key: str | None = Field(description="Its step key; null: it has no result.")
    name: str
    item: str | None = Field(description="What tells it from others: its key, or its place in the list.")
    attempt: int | None
    state: Literal["ran", "replayed", "reused", "failed"]
    ended_at: datetime | None
    duration_ms: float | None
    cost: Decimal | None
    calls: int
    reason: str | None = Field(description="Why it failed.")


class UnitsModel(BaseModel):
    """Units of a map, by their keys; those without a result come first, on the first page."""

    items: list[UnitModel]
    next: str | None = Field(description="Give it as `after`; null: this is the last page.")


class Provenance(BaseModel):
    """Where an answer of another run comes from."""

    run_id: str
    ran_at: str | None
    cost: Decimal | None


class ArtifactModel(BaseModel):
    """A large value, by reference."""

    sha256: str
    size: int | None
    media_type: str
    name: str | None = None
    href: str = Field(description="Gives its bytes; relative to this API.")


class ResultModel(BaseModel):
    """What a step gave: a value, or a reference to it."""

    value: Any = Field(default=None, description="Plain data, secrets masked, long texts and lists cut.")
    cut: bool = Field(default=False, description="Whether it was cut.")
    artifact: ArtifactModel | None = None
    unreadable: str | None = Field(default=None, description="Why it can't be shown here.")


class ArgumentModel(BaseModel):
    """An argument of a step, or the beginning of it: secrets masked, bytes counted, an artifact by its address."""

    name: str
    value: Any = Field(default=None, description="Plain data; a text where it can't be read here.")
    cut: bool = Field(default=False, description="Whether it is only the beginning.")
    artifact: ArtifactModel | None = None


class StepModel(BaseModel):
    """One recorded step."""

    key: str
    kind: str
    name: str
    path: str | None = Field(description="The units around it, from outside in: names and keys in turn.")
    state: StepState
    generation: int
    attempt: int
    attempt_try: int = Field(description="Airflow's try number: for the link to the log.")
    started_at: datetime
    ended_at: datetime
    duration_ms: float
    model: str | None
    provider: str | None
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None
    fingerprint: str = Field(description="SHA-256 over everything that decides the outcome.")
    changed: list[str] | None = Field(description="Against the generation before; null: there is nothing to compare.")
    provenance: Provenance | None
    arguments: list[ArgumentModel] | None = Field(
        description="Null: none are kept (`[aiflow] record_arguments`, a quick item of a map), or you may not see them."
    )
    result: ResultModel | None = Field(description="Null: you may not see results of this DAG.")
    sealed: bool | None = Field(description="Whether its seal is right; null: its artifact can't be looked at here.")


class DiffSide(BaseModel):
    """A step on one side of a comparison."""

    key: str
    duration_ms: float
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None
    result: Any = Field(default=None, description="Where both sides' results are small and differ: secrets masked.")


class DiffItem(BaseModel):
    """What became of a step."""

    name: str
    kind: str
    verdict: Verdict
    changed: list[str]
    before: DiffSide | None
    after: DiffSide | None
    lines: list[str] | None = Field(description="A unified line diff of the results, where both are small and differ.")


class DiffCounts(BaseModel):
    """How many steps came to which verdict."""

    same: int = 0
    changed: int = 0
    new: int = 0
    gone: int = 0


class DiffModel(BaseModel):
    """A comparison, in the order of the later side; equal steps are counted, and listed up to a limit."""

    items: list[DiffItem]
    counts: DiffCounts
    truncated: bool
