"""Write a batch of steps and events in one statement, and find out who was first where a step was there already."""

from __future__ import annotations

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.record import Batch, StepRecord
from airflow_aiflow.storage.connections import Connections, Params
from airflow_aiflow.storage.postgres_faults import RowExistsError
from airflow_aiflow.storage.rows import step_row, whole_step
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import shown

#: The parameters of a step, in the order of ``step_row``.
STEP_PARAMS = (
    "step_key",
    "kind",
    "name",
    "unit",
    "fingerprint",
    "occurrence",
    "step_fence",
    "result",
    "result_sha256",
    "seal",
    "ended_at",
    "duration_ms",
    "model",
    "response_id",
    "tokens_in",
    "tokens_out",
    "cost",
    "prints",
    "arguments",
)

#: Columns that may come as one value for all rows; the key's array is as long as there are rows.
ALIKE = ("kind", "name", "unit", "occurrence", "step_fence")


def record(connections: Connections, lease: Lease, generation: int, batch: Batch) -> list[StepRecord | None]:
    """
    Write steps from any fence and events from the current one.

    :param connections: those of the ledger.
    :return: for each step ``None`` where it was written, else the record that was there first.
    """
    if not batch.steps and not batch.events:
        return []
    if len(batch.steps) == len(batch.events) == 1 and batch.steps[0].reuse_key is None:
        try:
            connections.ask(statement("record_one"), _one(lease, generation, batch), small=True)
        except RowExistsError:
            pass  # a repeat after a lost answer, or a race: the other statement finds out
        else:
            return [None]
    written = connections.ask(statement("record_many"), _many(lease, generation, batch))
    return _answers(connections, lease, generation, batch.steps, {row[0] for row in written})


def _one(lease: Lease, generation: int, batch: Batch) -> Params:
    event = batch.events[0]
    params = dict(zip(STEP_PARAMS, step_row(batch.steps[0]), strict=True))
    params["execution_id"], params["fence"], params["generation"] = lease.execution_pk, lease.fence, generation
    params["first_seq"], params["event_kind"], params["event_data"] = batch.first_seq, shown(event.kind), event.data
    return params


def _many(lease: Lease, generation: int, batch: Batch) -> Params:
    """
    Give arrays, one a column.

    Most steps of a batch are a map's: alike in half of the columns, without a value in a third of them. Such a column
    goes as no array at all, which halves what the driver has to do for an item.
    """
    columns: dict[str, object] = {f"{name}_of_all": None for name in ALIKE}
    rows = zip(*map(step_row, batch.steps), strict=True) if batch.steps else ([] for _ in STEP_PARAMS)
    for name, values in zip(STEP_PARAMS, rows, strict=True):
        one = values[0] if values else None
        alike = values.count(one) == len(values) and (one is None or name in ALIKE)
        columns[name] = [] if alike else list(values)
        if alike and name in ALIKE:
            columns[f"{name}_of_all"] = one
    return columns | {
        "execution_id": lease.execution_pk,
        "fence": lease.fence,
        "generation": generation,
        "first_seq": batch.first_seq,
        "reuse_key": [step.reuse_key for step in batch.steps if step.reuse_key is not None],
        "reusable": [step.step_key for step in batch.steps if step.reuse_key is not None],
        "event_kind": [shown(event.kind) for event in batch.events],
        "event_data": [event.data for event in batch.events],
        "replaced": [seq for event in batch.events for seq in event.replaces],
    }


def _answers(
    connections: Connections, lease: Lease, generation: int, steps: tuple[StepRecord, ...], written: set[bytes]
) -> list[StepRecord | None]:
    """Give each step's answer; of equal steps in one batch the first is the one that was written."""
    lost = []
    for place, step in enumerate(steps):
        if step.step_key in written:
            written.discard(step.step_key)
        else:
            lost.append(place)
    answers: list[StepRecord | None] = [None] * len(steps)
    if lost:
        params = {
            "execution_id": lease.execution_pk,
            "generation": generation,
            "step_keys": list({steps[place].step_key for place in lost}),
        }
        first = {row[0]: whole_step(row) for row in connections.ask(statement("steps_by_key"), params)}
        for place in lost:
            answers[place] = first[steps[place].step_key]
    return answers
