"""What mapped siblings share, on the memory ledger's tables; each function is called under its lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from decimal import Decimal

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.ports import Totals
from airflow_aiflow.durable.record import SharedStep, StepRecord
from airflow_aiflow.storage.memory_tables import ExecutionRow, Tables
from airflow_aiflow.storage.rows import step_record


def recorded(steps: list[StepRecord], most: int) -> tuple[list[StepRecord], Totals | None]:
    """Leave out of many steps some that maps made, and sum all up."""
    if len(steps) <= most:
        return steps, None
    held = [step for place, step in enumerate(steps) if place < most or step.kind not in ("item", "llm")]
    usages = [step.usage for step in steps if step.usage is not None]
    sums = Totals(
        steps=len(steps),
        calls=len(usages),
        tokens_in=sum(usage.tokens_in for usage in usages),
        tokens_out=sum(usage.tokens_out for usage in usages),
        cost=sum((usage.cost or Decimal(0) for usage in usages), Decimal(0)),
        unpriced=sum(usage.cost is None for usage in usages),
    )
    return held, sums


def shared(tables: Tables, lease: Lease, step_key: bytes) -> SharedStep | None:
    """Give the step of the newest generation that another map index recorded before this clear."""
    me, mine = tables.by_pk.get(lease.execution_pk), tables.attempts.get((lease.execution_pk, lease.fence))
    if me is None or mine is None:
        return None
    found = [each for each in _before(tables, me, mine.counters.clear_number) if each.record.step_key == step_key]
    return max(found, key=lambda each: (each.generation, each.execution_pk), default=None)


def any_shared(tables: Tables, me: ExecutionRow, clear_number: int) -> bool:
    """Say whether other map indexes have recorded anything before this clear."""
    return clear_number > 0 and next(_before(tables, me, clear_number), None) is not None


def _before(tables: Tables, me: ExecutionRow, clear_number: int) -> Iterator[SharedStep]:
    for (pk, generation), steps in tables.steps.items():
        if pk == me.pk or _task(tables.by_pk[pk]) != _task(me):
            continue
        for row in steps.values():
            step: StepRecord = step_record(row)
            attempt = tables.attempts[pk, step.fence]
            if attempt.counters.clear_number < clear_number and not tables.live(Lease(pk, step.fence)):
                yield SharedStep(step, pk, generation)


def _task(row: ExecutionRow) -> tuple[str, ...]:
    return astuple(row.execution)[:3]
