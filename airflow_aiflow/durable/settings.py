"""The settings of a deployment as one checked value; who reads them from where is not known here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.policy import OnInDoubt


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Hold what ``[aiflow]`` configures, with its defaults; every duration is in seconds."""

    lease: LeaseRules = field(default_factory=LeaseRules)
    #: Bytes up to which a value lives in the ledger's row: a page of PostgreSQL holds half of it.
    inline_limit: int = 16_384
    on_clear: OnClear = "auto"
    on_in_doubt: OnInDoubt = "ask"
    effect_timeout: float = 60.0
    #: How long a newcomer waits for the live attempt to let go.
    handover: float = 120.0
    #: How long a caller waits for another live execution that is at work on the same effect.
    busy_wait: float = 60.0
    #: An intent that is older than this before its call is settled as not applied instead of calling.
    start_within: float = 5.0
    #: Time that a reschedule leaves Airflow to hear of the parked process; below about 20 s it fails healthy tasks.
    reschedule_delay: float = 30.0
    #: How long an outcome that can't reach the ledger is retried before it goes to the spool.
    ledger_patience: float = 60.0
    #: How long a task waits for a person's word on a doubt; then it fails, and the doubt stays.
    in_doubt_timeout: float = 86_400.0
    #: How long a task waits, over its reschedules, for a model that answers "not now"; then it fails.
    model_wait: float = 86_400.0
    #: Seconds that the unit in hand gets to end, once the process is told to.
    shutdown_grace: float = 20.0
    spool_dir: Path | None = None
    seal_key: bytes | None = None
    #: Keys that encrypt payloads at rest: the first one encrypts, all of them decrypt; empty: payloads are in clear.
    payload_keys: tuple[bytes, ...] = ()
    default_llm_conn_id: str = "pydanticai_default"
    ledger_conn_id: str = "aiflow_ledger"
    artifacts_conn_id: str = "aiflow_artifacts"
    api_conn_id: str = "aiflow_api"
    #: Whether requests and results are shown in the task log.
    log_content: bool = False
    #: Whether the beginning of each argument of a step is kept beside its result.
    record_arguments: bool = True
    #: Whether each attempt has a guard: a small process beside it.
    guard: bool = True
