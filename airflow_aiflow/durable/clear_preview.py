"""
Say beforehand what a clear will do: which tasks start anew, what is paid again, what is kept.

The list of task instances is Airflow's own dry run; what each of them will do is read by the rule by which the attempt
itself will decide (``durable.sign``), from what the ledger knows now.

Not covered: the REST API does not say which tasks are setups, so that a task below a cleared setup is shown as one that
replays, though a setup does not count when the attempt decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.run_view import ExecutionView
from airflow_aiflow.durable.sign import Evidence, Sign, begins_generation

NEVER_DURABLE = "never ran durable: Airflow runs it again as always"
NEW_GENERATION, RESUME = "new generation", "resume"

#: States of an effect that a clear keeps: it has happened.
KEPT = frozenset({"succeeded"})


@dataclass(frozen=True, slots=True)
class Instance:
    """Name a task instance that the clear would run again."""

    task_id: str
    map_index: int
    state: str | None


@dataclass(slots=True)
class Line:
    """
    Say what one or more task instances of a task will do.

    :param verdict: in words.
    :param starts_anew: whether its model calls run again.
    :param calls: model calls recorded now.
    :param cost: what they cost, in US dollars where prices are known.
    """

    task_id: str
    verdict: str
    starts_anew: bool
    below: bool
    indexes: list[int] = field(default_factory=list)
    steps: int = 0
    calls: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    durable: bool = True

    def add(self, view: ExecutionView) -> None:
        """
        Count an execution.

        :param view: as it stands.
        """
        self.steps += view.steps
        self.calls += view.calls
        self.cost += view.cost
        self.unpriced += view.unpriced
        for effect in view.effects:
            if effect.state in KEPT:
                self.kept[effect.name] += effect.count


@dataclass(frozen=True, slots=True)
class Preview:
    """
    Hold what a clear would do.

    :param doubts: numbers of intents without an outcome, with the effect's name.
    :param waiting: numbers of open questions, with their subjects.
    :param assets: (uri, DAGs that it triggers).
    """

    lines: list[Line]
    doubts: list[tuple[int, str]]
    waiting: list[tuple[int, str]]
    assets: list[tuple[str, int]]

    @property
    def calls(self) -> int:
        """Model calls that surely run again."""
        return sum(line.calls for line in self.lines if line.starts_anew)

    @property
    def cost(self) -> Decimal:
        """What they cost the last time."""
        return sum((line.cost for line in self.lines if line.starts_anew), Decimal(0))


def preview(
    instances: Sequence[Instance],
    views: Iterable[ExecutionView],
    *,
    downstream: Mapping[str, Iterable[str]],
    assets: Iterable[Mapping[str, Any]] = (),
    wish: OnClear | None = None,
    dag_id: str = "",
) -> Preview:
    """
    Put a preview together.

    :param instances: Airflow's dry run.
    :param views: the executions of the run.
    :param downstream: task id -> ids of the tasks right below it.
    :param assets: as the REST API lists them.
    :param wish: what the person asks of this clear.
    :param dag_id: whose tasks produce the assets.
    """
    known = {(view.execution.task_id, view.execution.map_index): view for view in views}
    cleared = {instance.task_id for instance in instances}
    below = _below(cleared, downstream)
    lines: dict[tuple[str, str], Line] = {}
    doubts, waiting = [], []
    for instance in sorted(instances, key=lambda one: (one.task_id, one.map_index)):
        view = known.get((instance.task_id, instance.map_index))
        verdict, anew = _verdict(view, below=instance.task_id in below, wish=wish)
        line = lines.setdefault(
            (instance.task_id, verdict), Line(instance.task_id, verdict, anew, instance.task_id in below)
        )
        line.indexes.append(instance.map_index)
        line.durable = view is not None
        if view is not None:
            line.add(view)
            doubts += _doubts(view)
            waiting += [(question.number, question.subject) for question in view.questions]
    return Preview(list(lines.values()), sorted(doubts), sorted(waiting), _emitted(assets, dag_id, cleared))


def _verdict(view: ExecutionView | None, *, below: bool, wish: OnClear | None) -> tuple[str, bool]:
    if view is None:
        return NEVER_DURABLE, False
    running = view.state is ExecutionState.RUNNING
    evidence = Evidence(heard=view.heard, top=not below, wish=wish)
    anew = begins_generation(Sign.CLEARED, view.on_clear or "auto", evidence)
    state = ("running" if view.live else "interrupted") if running else view.state.value
    why = ""
    if not anew and view.state is ExecutionState.SUCCEEDED and wish is None and view.on_clear != "resume":
        why = (
            " (below the top of the clear)" if below else "" if view.heard else " (Airflow did not hear of the success)"
        )
    return f"{state} -> {NEW_GENERATION if anew else RESUME}{why}", anew


def _doubts(view: ExecutionView) -> list[tuple[int, str]]:
    """Give what has no outcome; what a live attempt has begun is in hand, not in doubt."""
    states = {"in_doubt"} if view.live else {"in_doubt", "intended"}
    return [(number, one.name) for one in view.effects if one.state in states for number in one.open_numbers]


def _below(cleared: set[str], downstream: Mapping[str, Iterable[str]]) -> set[str]:
    """Give the tasks that have a cleared one above them."""
    found: set[str] = set()
    todo = list(cleared)
    while todo:
        for task_id in downstream.get(todo.pop(), ()):
            if task_id not in found:
                found.add(task_id)
                todo.append(task_id)
    return found


def _emitted(assets: Iterable[Mapping[str, Any]], dag_id: str, cleared: set[str]) -> list[tuple[str, int]]:
    return sorted(
        (str(asset["uri"]), len({one["dag_id"] for one in asset["scheduled_dags"]}))
        for asset in assets
        if any(one["dag_id"] == dag_id and one["task_id"] in cleared for one in asset["producing_tasks"])
    )


def as_json(found: Preview) -> dict[str, Any]:
    """
    Give a preview as plain values; amounts are texts.

    :param found: the preview.
    """
    return {
        "tasks": [
            {
                "task_id": line.task_id,
                "map_indexes": line.indexes,
                "durable": line.durable,
                "verdict": line.verdict,
                "new_generation": line.starts_anew,
                "below": line.below,
                "steps_recorded": line.steps,
                "model_calls_recorded": line.calls,
                "model_calls_again": line.calls if line.starts_anew else 0,
                "cost_again": str(line.cost if line.starts_anew else Decimal(0)),
                "unpriced": line.unpriced,
                "effects_kept": dict(line.kept),
            }
            for line in found.lines
        ],
        "model_calls_again": found.calls,
        "cost_again": str(found.cost),
        "in_doubt": [{"number": number, "effect": name} for number, name in found.doubts],
        "waiting": [{"number": number, "subject": subject} for number, subject in found.waiting],
        "assets": [{"uri": uri, "triggers_dags": count} for uri, count in found.assets],
    }
