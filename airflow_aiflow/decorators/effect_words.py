"""The options of an effect as keywords, for type checkers: the same words wherever an effect is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal

    from airflow_aiflow.durable.classify import Kind
    from airflow_aiflow.durable.identity import Scope
    from airflow_aiflow.durable.policy import Duration, OnConflict, OnInDoubt
    from airflow_aiflow.durable.reconcile import Finding, Intent


class EffectWords(TypedDict, total=False):
    """Name the options beside ``key``; ``durable.policy.EffectOptions`` says what each means."""

    scope: Scope | None
    on_in_doubt: OnInDoubt
    reconcile: Callable[[Intent], Finding] | None
    in_doubt_timeout: Duration
    retry_window: Duration | None
    identity: Sequence[str] | Literal["key"] | None
    on_conflict: OnConflict
    require_approval: bool
    assigned_users: Sequence[str]
    timeout: Duration
    retries: int
    dedup_ttl: Duration | None
    classify: Callable[[BaseException], Kind | None] | None
    compensate: Callable[[Intent, Any], None] | None
