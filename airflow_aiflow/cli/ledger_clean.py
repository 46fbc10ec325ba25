"""
Carry out `aiflow db clean`: find what may go, say so, ask, remove it batch by batch.

Airflow is asked before anything is removed, and any trouble with it ends the command with nothing removed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_aiflow.cli.api_address import VARIABLE, find_api
from airflow_aiflow.cli.ledger_address import find_ledger, stack_in_mind
from airflow_aiflow.cli.output import FINDING, OK, note, show, table
from airflow_aiflow.cli.progress_bar import Lines
from airflow_aiflow.durable.clean import LEFT, CleanPlan, Scope, moment_before
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.storage.postgres_clean import BATCH, COUNTED, PostgresClean

if TYPE_CHECKING:
    from airflow_aiflow.hooks.airflow_runs import AirflowRuns

#: Seconds between two lines about progress: a log of a long cleaning stays short.
TELL_EVERY = 2.0

ARTIFACTS = (
    "artifacts in the object store were not removed: several records, XComs and people may point to the same one"
)


def run_clean(options: argparse.Namespace) -> int:
    """
    Remove what is left of runs that are over, or say what would be.

    :raises AiflowConfigError: if nothing says where Airflow or the ledger is, or nobody can be asked.
    """
    from airflow_aiflow.hooks.airflow_runs import AirflowRuns

    if not (options.yes or options.dry_run or (sys.stdin.isatty() and not options.json)):
        raise AiflowConfigError(
            "nobody is at a terminal to agree: say --yes to remove, or --dry-run to see what would go. "
            "Nothing was removed"
        )
    api = find_api(options)
    if api is None:
        raise AiflowConfigError(
            f"where is Airflow? A run that it still has is never removed, so it must be asked by its REST API: set "
            f"{VARIABLE} to a connection of type http, such as http://USER:PASSWORD@HOST:8080. Nothing was removed"
        )
    with closing(api), stack_in_mind(options), closing(PostgresClean.connect(find_ledger(options))) as ledger:
        named = options.dag_id
        scope = Scope(moment_before(options.before, ledger.now()), named, options.effects)
        runs = AirflowRuns(api, named=named or ())
        runs.check()
        plan = make_plan(ledger, runs, scope)
        if options.dry_run:
            show(options, _as_json(plan, scope) | {"dry_run": True}, _as_text(plan, scope, "would go"))
            return OK
        note(_as_text(plan, scope, "will go"))
        if not options.yes and not _agreed():
            show(options, {"removed": {}}, "nothing was removed")
            return FINDING
        removed = remove(ledger, runs, plan, scope)
    rows = {name: number for name, number in removed.items() if number}
    said = ", ".join(f"{name} {number}" for name, number in rows.items()) or "nothing"
    show(options, _as_json(plan, scope) | {"removed": rows, "artifacts": ARTIFACTS}, f"removed: {said}\n{ARTIFACTS}")
    return OK


def make_plan(ledger: PostgresClean, runs: AirflowRuns, scope: Scope) -> CleanPlan:
    """
    Find what may go. What wrote an effect is noted before former writers are looked for, so that none slips through.

    :param ledger: the ledger.
    :param runs: Airflow's word on runs.
    :param scope: what is asked for.
    """
    plan = CleanPlan()
    found = _of_gone_runs(ledger, runs, scope, plan)
    for ids in _parts(list(found), BATCH):
        held = ledger.held(ids, scope)
        plan.left.update(held.values())
        plan.executions.update({one: found[one] for one in ids if one not in held})
    plan.over = frozenset(plan.executions)
    effects = [each for ids in _parts(list(plan.executions), BATCH) for each in ledger.effects(ids)]
    plan.effects = dict(Counter(each.execution_pk for each in effects))
    plan.former = frozenset(one for one in ledger.former() if one in plan.executions)
    going: dict[int, list[int]] = {}
    if scope.effects:
        for each in effects:
            if each.settled and each.writers <= plan.over:
                going.setdefault(each.execution_pk, []).append(each.intents)
    for ids in _parts(list(plan.executions), COUNTED):
        for execution_pk, counts in ledger.counts(ids).items():
            _count(plan, execution_pk, counts, going.get(execution_pk, []))
    return plan


def remove(ledger: PostgresClean, runs: AirflowRuns, plan: CleanPlan, scope: Scope) -> Counter[str]:
    """
    Remove what was found, in batches.

    :param ledger: the ledger.
    :param runs: Airflow's word on runs.
    :param plan: what was found.
    :param scope: what it was found for.
    :return: rows by table.
    """
    removed: Counter[str] = Counter()
    ledger.carry_sums_on(scope.before)
    with closing(Lines()) as lines:
        done, told = 0, -TELL_EVERY
        for ids in _parts(list(plan.executions), BATCH):
            more = True
            while more:
                rows, more = ledger.remove(ids, plan, scope)
                removed.update(rows)
            done += len(ids)
            if (now := time.monotonic()) - told >= TELL_EVERY or done == len(plan.executions):
                lines.bar(done, len(plan.executions), f"executions, {sum(removed.values())} rows removed")
                told = now
    removed.update(ledger.remove_submissions(scope, runs.gone))
    removed.update(ledger.remove_budgets(scope, runs.gone))
    return removed


def _of_gone_runs(
    ledger: PostgresClean, runs: AirflowRuns, scope: Scope, plan: CleanPlan
) -> dict[int, tuple[str, str]]:
    """Give the executions that are over and whose run Airflow no longer has."""
    shared: dict[tuple[str, str], tuple[str, str]] = {}
    found: dict[int, tuple[str, str]] = {}
    for execution_pk, dag_id, run_id in ledger.ended(scope):
        found[execution_pk] = shared.setdefault((dag_id, run_id), (dag_id, run_id))
    by_dag: dict[str, list[str]] = {}
    for dag_id, run_id in shared:
        by_dag.setdefault(dag_id, []).append(run_id)
    gone = {dag_id: runs.gone(dag_id, run_ids) for dag_id, run_ids in by_dag.items()}
    plan.unknown_dags = [dag_id for dag_id in runs.unknown_dags if dag_id not in (scope.dag_ids or ())]
    there = [run for run in found.values() if run[1] not in gone[run[0]]]
    plan.left.update("dag" if dag_id in plan.unknown_dags else "run" for dag_id, _ in there)
    return {one: run for one, run in found.items() if run[1] in gone[run[0]]}


def _count(plan: CleanPlan, execution_pk: int, counts: list[tuple[str, int]], going: list[int]) -> None:
    """Count one execution's rows. One that is kept for its effects, and of which nothing else is left, is no news."""
    stays = plan.effects.get(execution_pk, 0) > len(going) or execution_pk in plan.former
    rows = [(name, number) for name, number in counts if not (stays and name == "attempt")]
    rows += [("effect", len(going)), ("intent", sum(going)), ("execution", 0 if stays else 1)]
    if any(number for _, number in rows):
        plan.count(execution_pk, rows)
    else:
        del plan.executions[execution_pk]


def _agreed() -> bool:
    try:
        return input("remove this for good? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _as_json(plan: CleanPlan, scope: Scope) -> dict[str, Any]:
    removable = {dag_id: {name: n for name, n in rows.items() if n} for dag_id, rows in sorted(plan.rows.items())}
    return {
        "before": scope.before.isoformat(),
        "effects": scope.effects,
        "removable": removable,
        "left": dict(plan.left),
        "unknown_dags": plan.unknown_dags,
    }


def _as_text(plan: CleanPlan, scope: Scope, verb: str) -> str:
    tables = [name for name in _TABLES if any(rows[name] for rows in plan.rows.values())]
    lines = [f"of runs that ended before {scope.before:%Y-%m-%d %H:%M:%S%z} and that Airflow no longer has, {verb}:"]
    if tables:
        body = [[dag_id, *(str(rows[name]) for name in tables)] for dag_id, rows in sorted(plan.rows.items())]
        lines.append(table([["dag", *tables], *body]))
    else:
        lines.append("no execution")
    lines += [f"left: {number} executions: {LEFT[reason]}" for reason, number in sorted(plan.left.items())]
    if plan.unknown_dags:
        lines.append(f"not known to Airflow: {', '.join(plan.unknown_dags)}")
    if scope.effects:
        lines.append("settled effects go as well: a later call with such a key will be made again")
    else:
        lines.append("effects stay, with their task and tries: a later call with such a key is still not made again")
    lines.append("their submissions, budgets and callbacks go where nothing is left that needs them")
    return "\n".join(lines)


#: In the order in which people read them.
_TABLES = (
    "execution",
    "attempt",
    "step",
    "event",
    "effect",
    "intent",
    "question",
    "label",
    "failed_item",
    "wasted_call",
    "requeue",
    "incident",
    "wish",
    "model_wait",
)


def _parts(ids: Sequence[int], most: int) -> Iterator[list[int]]:
    for start in range(0, len(ids), most):
        yield list(ids[start : start + most])
