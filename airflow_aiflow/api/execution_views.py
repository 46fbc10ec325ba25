"""From the ledger's values to the JSON of executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from airflow_aiflow.api.execution_models import (
    STEP_COLUMNS,
    AttemptModel,
    EffectBar,
    EffectSums,
    ExecutionModel,
    ExecutionName,
    GenerationModel,
    Head,
    MapModel,
    Owner,
    Paid,
    QuestionLine,
    RunModel,
    RunTotals,
    Saved,
    Spending,
    StepCells,
    StepTable,
    TimelineModel,
    UnitModel,
)
from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import OWN_KEY, ExecutionId
from airflow_aiflow.durable.items import FailedItem
from airflow_aiflow.durable.run_view import ExecutionView
from airflow_aiflow.durable.timeline import AttemptView, SavedView, StepRow, StepState, Timeline, UnitPage
from airflow_aiflow.exceptions import PayloadError
from airflow_aiflow.runtime.readable import certainty, unsettled
from airflow_aiflow.storage.payload_cipher import PayloadCipher

_ATTEMPT = STEP_COLUMNS.index("attempt")


def name_of(execution: ExecutionId) -> ExecutionName:
    """
    Name an execution.

    :param execution: which one.
    """
    return ExecutionName(
        dag_id=execution.dag_id,
        run_id=execution.run_id,
        task_id=execution.task_id,
        map_index=execution.map_index,
    )


def owner_of(effect: EffectRecord) -> Owner | None:
    """
    Say whether somebody may be at work on a call.

    :param effect: as read.
    :return: ``None``: its outcome is known.
    """
    if not unsettled(effect):
        return None
    found = certainty(effect)
    return "alive" if found == "at work" else found


def execution_model(view: ExecutionView, saved: SavedView) -> ExecutionModel:
    """
    Show an execution.

    :param view: as it stands.
    :param saved: what it did not have to pay again.
    """
    by_state: dict[str, int] = {}
    for one in view.effects:
        by_state[one.state] = by_state.get(one.state, 0) + one.count
    # What a live attempt has begun is in hand, not in doubt.
    doubt = by_state.get("in_doubt", 0) + (0 if view.live else by_state.get("intended", 0))
    done = by_state.get("succeeded", 0)
    return ExecutionModel(
        task_id=view.execution.task_id,
        map_index=view.execution.map_index,
        state=view.state,
        generation=view.generation,
        attempts=saved.attempts,
        sign=view.sign,
        started_at=saved.started_at,
        finished_at=view.finished_at,
        pause_reason=view.pause_reason,
        live=view.live,
        heard=view.heard,
        steps=view.steps,
        calls=view.calls,
        tokens_in=view.tokens_in,
        tokens_out=view.tokens_out,
        cost=view.cost,
        unpriced=view.unpriced,
        saved=saved_model(saved),
        effects=EffectSums(done=done, in_doubt=doubt, other=sum(by_state.values()) - done - doubt),
        questions=[QuestionLine(number=each.number, kind=each.kind, subject=each.subject) for each in view.questions],
        recoveries=saved.recoveries,
        labels=dict(view.labels),
    )


def saved_model(saved: SavedView) -> Saved:
    """
    Show what was saved.

    :param saved: as read.
    """
    return Saved(
        replay=Spending(calls=saved.replayed_calls, cost=saved.replayed_cost),
        reuse=Spending(calls=saved.reused_calls, cost=saved.reused_cost),
    )


def run_model(dag_id: str, run_id: str, found: Sequence[tuple[ExecutionView, SavedView]]) -> RunModel:
    """
    Show a run.

    :param found: its executions.
    """
    items = [execution_model(*each) for each in found]
    replay, reuse = [each.saved.replay for each in items], [each.saved.reuse for each in items]
    totals = RunTotals(
        executions=len(items),
        steps=sum(each.steps for each in items),
        calls=sum(each.calls for each in items),
        tokens_in=sum(each.tokens_in for each in items),
        tokens_out=sum(each.tokens_out for each in items),
        cost=sum((each.cost for each in items), Decimal(0)),
        unpriced=sum(each.unpriced for each in items),
        saved=Saved(replay=_sum(replay), reuse=_sum(reuse)),
        in_doubt=sum(each.effects.in_doubt for each in items),
        recoveries=sum(each.recoveries for each in items),
    )
    return RunModel(dag_id=dag_id, run_id=run_id, items=items, totals=totals)


def _sum(each: Sequence[Spending]) -> Spending:
    return Spending(calls=sum(one.calls for one in each), cost=sum((one.cost for one in each), Decimal(0)))


def timeline_model(found: Timeline) -> TimelineModel:
    """
    Show an execution's life.

    :param found: as read.
    """
    view, saved, wasted = found.execution, found.saved, found.wasted
    execution = execution_model(view, saved)
    head = Head(
        paid=Paid(
            calls=view.calls + wasted.calls,
            cost=view.cost + wasted.cost,
            unpriced=view.unpriced + wasted.unpriced,
            tokens_in=view.tokens_in + wasted.tokens_in,
            tokens_out=view.tokens_out + wasted.tokens_out,
        ),
        saved_replay=execution.saved.replay,
        saved_reuse=execution.saved.reuse,
        effects_done=execution.effects.done,
        in_doubt=execution.effects.in_doubt,
    )
    generations = {each.fence: each.generation for each in found.generations}
    return TimelineModel(
        execution=execution,
        generation=found.generation,
        generations=[
            GenerationModel(generation=each.generation, started_at=each.started_at, why=each.why)
            for each in found.generations
        ],
        head=head,
        attempts=_attempts(found, generations),
        steps=step_table(found.rows, found.attempts),
        maps=[
            MapModel(
                name=each.name,
                units=each.units,
                steps=each.steps,
                done=each.units,
                failed=each.failed,
                calls=each.calls,
                cost=each.cost,
                first_at=each.first_at,
                last_at=each.last_at,
            )
            for each in found.maps
        ],
        effects=[effect_bar(each) for each in found.effects],
        truncated=found.truncated,
    )


def _attempts(found: Timeline, began: Mapping[int, int]) -> list[AttemptModel]:
    models, generation = [], 1
    for one in found.attempts:
        generation = began.get(one.fence, generation)
        last = one is found.attempts[-1]
        models.append(
            AttemptModel(
                attempt=one.attempt,
                fence=one.fence,
                generation=generation,
                sign=one.sign,
                try_number=one.try_number,
                started_at=one.started_at,
                ended_at=one.ended_at,
                outcome=one.outcome,
                reason=_reason(one, found.execution if last else None),
                host=one.host,
                pid=one.pid,
            )
        )
    return models


def _reason(one: AttemptView, last: ExecutionView | None) -> str | None:
    if one.outcome == "paused" and last is not None:
        return last.pause_reason
    if one.outcome in ("killed", "superseded"):
        if one.ending == "let_go":
            return "it was interrupted, and gave its place back"
        return None if one.died_in is None else f"in '{one.died_in}'"
    return None


def effect_bar(effect: EffectRecord) -> EffectBar:
    """
    Show an effect of a timeline.

    :param effect: as read.
    """
    return EffectBar(
        number=effect.number,
        name=effect.effect.name,
        key=None if effect.effect.key == OWN_KEY else effect.effect.key,
        state=EffectState(effect.state),
        begun_at=effect.intended_at,
        settled_at=effect.settled_at,
        attempt=effect.attempt_number,
        fence=effect.lease.fence,
        certainty=owner_of(effect),
    )


def step_state(row: StepRow, last_fence: int) -> StepState:
    """
    Say what became of a step in the last attempt.

    :param row: the step.
    :param last_fence: of the last attempt.
    """
    if row.reused:
        return "reused"
    return "replayed" if row.fence < last_fence else "ran"


def step_table(rows: Sequence[StepRow], attempts: Sequence[AttemptView]) -> StepTable:
    """
    Show steps as rows.

    :param rows: of one generation.
    :param attempts: of the execution.
    """
    numbers = {one.fence: one.attempt for one in attempts}
    last = attempts[-1].fence if attempts else 0
    return StepTable(columns=list(STEP_COLUMNS), rows=[_cells(row, numbers, last) for row in rows])


def _cells(row: StepRow, numbers: Mapping[int, int], last: int) -> StepCells:
    inside, item = unit_of(row.unit)
    return (
        row.key.hex(),
        row.kind,
        row.name,
        inside,
        item,
        numbers.get(row.fence, row.fence),
        _milliseconds(row.began_at),
        _milliseconds(row.ended_at),
        step_state(row, last),
        row.cost,
        row.calls,
        row.fence,
    )


def unit_of(unit: str) -> tuple[str | None, str | None]:
    """
    Read the outermost unit around a step.

    :param unit: its path: names and keys in turn.
    :return: its name and its key; ``None`` twice: there is none.
    """
    if not unit:
        return None, None
    name, _, rest = unit.partition("/")
    return name, rest.partition("/")[0] or None


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def unit_models(page: UnitPage, attempts: Sequence[AttemptView], cipher: PayloadCipher) -> list[UnitModel]:
    """
    Show units of a map.

    :param page: as read.
    :param attempts: of the execution.
    :param cipher: opens encrypted errors.
    """
    numbers = {one.fence: one.attempt for one in attempts}
    last = attempts[-1].fence if attempts else 0
    return [_failed(item, cipher) for item in page.failed if item.state in ("failed", "dead")] + [
        UnitModel(
            key=row.key.hex(),
            name=row.name,
            item=unit_of(row.unit)[1],
            attempt=numbers.get(row.fence),
            state=step_state(row, last),
            ended_at=row.ended_at,
            duration_ms=(row.ended_at - row.began_at).total_seconds() * 1000,
            cost=row.cost,
            calls=row.calls,
            reason=None,
        )
        for row in page.rows
    ]


def _failed(item: FailedItem, cipher: PayloadCipher) -> UnitModel:
    return UnitModel(
        key=None,
        name=item.name,
        item=item.key or f"item {item.number}",
        attempt=None,
        state="failed",
        ended_at=item.at,
        duration_ms=None,
        cost=None,
        calls=0,
        reason=error_text(item, cipher),
    )


def error_text(item: FailedItem, cipher: PayloadCipher) -> str | None:
    """
    Say why an item failed.

    :param item: as read.
    :param cipher: opens it where it is encrypted.
    :return: ``None``: there is no word of it, for its process was lost.
    """
    from airflow_aiflow.durable.payload import decode

    if item.error is None:
        return None
    try:
        plain = decode(cipher.open(item.error, "an error"))
        return f"{plain['type']}: {plain['message']}"
    except (PayloadError, KeyError, TypeError):
        return "not readable here: the task log has it"
