"""The JSON of what concerns many executions: sums, runs of a DAG, recoveries, batches, limits, finds, a clear."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from airflow_aiflow.api.execution_models import ExecutionName, FailedUnit, Spending
from airflow_aiflow.durable.attempt import OnClear

Id = Annotated[str, Field(min_length=1, max_length=250, pattern=r"^[^\x00]+$")]


class OverviewModel(BaseModel):
    """Sums over some days, of the DAGs that you may read."""

    days: int
    saved: Spending = Field(description="Recorded calls that later attempts found, and answers of other runs.")
    saved_replay: Spending
    reused_calls: int
    paid: Spending
    unpriced: int
    runs: int = Field(description="Whose first durable task began.")
    executions: int
    success_rate: float | None = Field(description="Of the attempts that ended by themselves; null: none did.")
    mean_recoveries: float | None = Field(description="Requeues by recovery for each execution; null: none began.")
    recoveries: int
    detect_seconds_p50: float | None = Field(description="From a stall until it was found.")
    commit_seconds_p50: float | None = Field(description="Of small commits that this server made lately.")
    in_doubt: int
    waiting: int = Field(description="What waits for a person, doubts among it.")
    behind_seconds: float = Field(description="How far the sums are behind the ledger.")


class HistoryRun(BaseModel):
    """A run of a DAG; one of which nothing ran durable has zeros."""

    run_id: str
    started_at: datetime | None
    ended_at: datetime | None
    duration_ms: float | None
    state: str = Field(description="Airflow's word.")
    calls_paid: int
    calls_saved: int
    cost: Decimal
    saved_cost: Decimal
    unpriced: int
    recoveries: int
    in_doubt: int
    outlier: bool = Field(description="Whether its duration or cost lies far from the others'.")


class HistoryModel(BaseModel):
    """The last runs of a DAG, the latest first."""

    items: list[HistoryRun]


class RecoveryModel(BaseModel):
    """What recovery found and did."""

    number: int
    found_at: datetime
    kind: str
    execution: ExecutionName = Field(description="Of a run as a whole the task is empty.")
    evidence: str = Field(description="For people.")
    basis: str
    deed: Literal["requeue", "quarantine", "settle", "leave"]
    gone_on_at: datetime | None = Field(description="When the next attempt began.")
    detect_seconds: float
    airflow_alone_seconds: float | None = Field(
        description="After which Airflow's own settings would have found it; null: it would not, or nobody can tell."
    )
    host: str | None
    died_in: str | None


class RecoveryPage(BaseModel):
    """Finds, the latest first."""

    items: list[RecoveryModel]
    next: str | None


class BatchModel(BaseModel):
    """A map of more than some fifty items, or of more than half a minute."""

    execution: ExecutionName
    map: str
    state: str
    live: bool
    done: int = Field(description="Items that have a result.")
    total: int | None
    failed: int
    rate: float | None = Field(description="Items a second.")
    eta_seconds: float | None
    started_at: datetime
    ended_at: datetime | None


class BatchesModel(BaseModel):
    """Maps in progress, then those that ended within a day."""

    items: list[BatchModel]


class DeadLetter(FailedUnit):
    """An item without a result, with where it stands."""

    execution: ExecutionName
    map: str


class DeadLetters(BaseModel):
    """Items without a result."""

    items: list[DeadLetter]
    truncated: bool


class RetryBody(BaseModel):
    """Which failed items to run once more, and nothing else."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"dag_id": "invoices", "run_id": "manual__1", "task_id": "book"}]},
    )

    dag_id: Id
    run_id: Id
    task_id: Id | None = Field(default=None, description="Null: of every task.")
    map_index: int | None = Field(default=None, ge=-1, lt=2**31, description="Null: every one.")


class RetryModel(BaseModel):
    """What will run once more as soon as Airflow has cleared these task instances; they are to resume."""

    items: int
    task_ids: list[tuple[str, int] | str] = Field(description="As Airflow's clearTaskInstances takes them.")


class LimitUse(BaseModel):
    """What counts against a limit, what is lent to workers among it."""

    requests: int
    tokens: int
    running: int
    waiting: int = Field(description="Calls that wait for it.")
    workers: int


class LimitModel(BaseModel):
    """A limit, and what counts against it now."""

    name: str
    rpm: int | None
    tpm: int | None
    concurrency: int | None
    used: LimitUse


class LimitsModel(BaseModel):
    """The limits by name."""

    items: list[LimitModel]


class HitModel(BaseModel):
    """A find."""

    what: Literal["effect", "run", "artifact"]
    label: str
    execution: ExecutionName
    number: int | None = None
    step_key: str | None = None


class HitsModel(BaseModel):
    """What a word has found."""

    items: list[HitModel]


class ClearBody(BaseModel):
    """A clear that somebody thinks of."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"dag_id": "invoices", "run_id": "manual__1", "task_ids": ["book"]}]},
    )

    dag_id: Id
    run_id: Id
    task_ids: list[Id | tuple[Id, Annotated[int, Field(ge=-1, lt=2**31)]]] | None = Field(
        default=None, min_length=1, max_length=1000, description="Tasks, or [task, map index]; null: all of the run."
    )
    downstream: bool = Field(default=False, description="Whether what is below is cleared, too.")
    upstream: bool = False
    only_failed: bool = False
    on_clear: OnClear | None = Field(default=None, description="resume or fresh: what you would ask of it; null: auto.")


class WishBody(ClearBody):
    """What the next attempts of a clear shall do; written before Airflow is asked to clear."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"dag_id": "invoices", "run_id": "manual__1", "task_ids": ["book"], "on_clear": "fresh"}]
        },
    )

    on_clear: Literal["resume", "fresh"] = Field(description="fresh: a new generation, effects stay deduplicated.")


class WishSettledBody(ClearBody):
    """Whether Airflow has taken the clear."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"dag_id": "invoices", "run_id": "manual__1", "task_ids": ["book"], "cleared": True}]
        },
    )

    cleared: bool


class WishModel(BaseModel):
    """Of how many durable task instances something is wished."""

    executions: int


class ClearTask(BaseModel):
    """What one or more task instances of a task would do."""

    task_id: str
    map_indexes: list[int]
    durable: bool
    verdict: str
    new_generation: bool
    below: bool = Field(description="Whether another cleared task stands above: calls with changed input run again.")
    steps_recorded: int
    model_calls_recorded: int
    model_calls_again: int
    cost_again: Decimal
    unpriced: int = Field(description="Recorded calls without a known price.")
    effects_kept: dict[str, int]


class ClearDoubt(BaseModel):
    """A call without an outcome."""

    number: int
    effect: str


class ClearQuestion(BaseModel):
    """A question that is open."""

    number: int
    subject: str


class ClearAsset(BaseModel):
    """An asset whose event would be emitted again."""

    uri: str
    triggers_dags: int


class ClearModel(BaseModel):
    """What a clear would do. Nothing was cleared."""

    tasks: list[ClearTask]
    model_calls_again: int
    cost_again: Decimal
    in_doubt: list[ClearDoubt]
    waiting: list[ClearQuestion]
    assets: list[ClearAsset]
