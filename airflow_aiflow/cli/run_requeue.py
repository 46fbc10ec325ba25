"""
Carry out `aiflow runs requeue`: what recovery would do at its next look, now and on a person's word.

The same rules decide, and the same deeds are done: marked in the ledger first, so that recovery's own pass and this
command together requeue once. ``--force`` lifts what only makes recovery wait or give up: back-off, the number of
recoveries, quarantine, a paused DAG. What must never happen it does not lift. The rate limit and the breaker are for
machines, and do not count for a person's word.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_aiflow.cli.api_address import VARIABLE, find_api
from airflow_aiflow.cli.ledger_address import find_ledger, stack_in_mind
from airflow_aiflow.cli.output import FINDING, OK, show, table
from airflow_aiflow.cli.run_address import RunAddress, TaskAddress, task_names
from airflow_aiflow.cli.run_lists import not_found, open_runs
from airflow_aiflow.cli.surroundings import surroundings
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.stall import Decision, Evidence, Leave, Quarantine, Requeue, Settle, Stall
from airflow_aiflow.exceptions import AiflowConfigError, RunNotFoundError

if TYPE_CHECKING:
    from airflow_aiflow.hooks.airflow_api import AirflowApi
    from airflow_aiflow.recovery.one_pass import Fence
    from airflow_aiflow.storage.postgres_recovery import PostgresRecovery

#: More deaths and recoveries than any execution has.
NO_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class Word:
    """
    Tell what becomes of one execution.

    :param done: whether it was requeued; with ``--preview``, whether it would be.
    :param why: what was found, or why not.
    :param hint: what a person can do, where it was refused.
    """

    execution: ExecutionId
    done: bool
    why: str
    kind: str | None = None
    hint: str = ""


def run_requeue(options: argparse.Namespace) -> int:
    """
    Requeue what is stalled in a run, or say why not.

    :raises AiflowConfigError: if nothing says where Airflow's API or the ledger is.
    :raises RunNotFoundError: if the ledger does not know the run, or the task.
    """
    from airflow_aiflow.storage.postgres_recovery import PostgresRecovery

    api = find_api(options)
    if api is None:
        raise AiflowConfigError(
            f"where is Airflow? It requeues the tasks, by its REST API: set {VARIABLE} to a connection of type http, "
            "such as http://USER:PASSWORD@HOST:8080, or start the embedded stack by `aiflow up`"
        )
    executions = _meant(options)
    with (
        closing(api),
        stack_in_mind(options),
        closing(PostgresRecovery.connect(find_ledger(options))) as ledger,
    ):
        words = _requeue(options, executions, ledger, api)
    return _tell(options, words)


def _meant(options: argparse.Namespace) -> list[ExecutionId]:
    run: RunAddress = options.RUN
    tasks: Sequence[TaskAddress] = options.task or ()
    with open_runs(options) as runs:
        known = [view.execution for view in runs.executions(*run)]
    if not known:
        raise not_found(run)
    for task in tasks:
        if not any(task.matches(one.task_id, one.map_index) for one in known):
            names = task_names(sorted((one.task_id, one.map_index) for one in known))
            raise RunNotFoundError(f"no task {task} of run {run} ran durable; these did: {names}. Nothing was requeued")
    return [one for one in known if not tasks or any(task.matches(one.task_id, one.map_index) for task in tasks)]


def _requeue(
    options: argparse.Namespace, executions: Sequence[ExecutionId], ledger: PostgresRecovery, api: AirflowApi
) -> list[Word]:
    from airflow_aiflow.config import recovery_policy
    from airflow_aiflow.recovery.airflow_view import AirflowView
    from airflow_aiflow.recovery.deeds import Deeds
    from airflow_aiflow.recovery.one_pass import decide_all
    from airflow_aiflow.runtime.process import is_dead

    with surroundings(options):
        policy = recovery_policy()
    stalls = [stall for one in executions if (stall := ledger.execution(one)) is not None]
    dead: frozenset[Fence] = frozenset((one.execution_pk, one.fence) for one in stalls if is_dead(one.owner))
    view = AirflowView(api)
    seen = view.closely(view.read(stall.execution for stall in stalls))
    histories = ledger.histories(stalls)
    decided = decide_all(stalls, seen, histories, policy, dead=dead)
    if options.force:
        forced = decide_all([_at_once(one) for one in stalls], seen, histories, lifted(policy), dead=dead)
        decided = [(evidence, after) for (evidence, _), (_, after) in zip(decided, forced, strict=True)]
    going = [(evidence, what) for evidence, what in decided if isinstance(what, Requeue)]
    if options.preview:
        return [_foreseen(evidence, what) for evidence, what in decided]
    deeds = Deeds(ledger, api, dead=dead).carry_out(going)
    done = {deed.incident.execution: deed.done for deed in deeds}
    return [_word(evidence, what, done) for evidence, what in decided]


def lifted(policy: RecoveryPolicy) -> RecoveryPolicy:
    """
    Lift what only makes recovery wait or give up.

    :param policy: the deployment's.
    """
    return replace(policy, backoff=0.0, quarantine_after=NO_LIMIT, max_recoveries=NO_LIMIT, paused_dags=True)


def _at_once(stall: Stall) -> Stall:
    """Give a stall whose task's own word on how often and how carefully is lifted; ``off`` stays off."""
    how = "resume" if stall.recovery in ("auto", "careful") else stall.recovery
    return replace(stall, max_recoveries=None, recovery=how)


def _foreseen(evidence: Evidence, what: Decision) -> Word:
    if isinstance(what, Requeue):
        return Word(evidence.stall.execution, True, what.why, what.kind.value)
    return _refused(evidence, what)


def _word(evidence: Evidence, what: Decision, done: Mapping[ExecutionId, Decision]) -> Word:
    execution = evidence.stall.execution
    if not isinstance(what, Requeue):
        return _refused(evidence, what)
    became = done.get(execution)
    if became is None:
        return Word(execution, False, f"{what.why}; it changed at this moment, or recovery is at it already")
    if isinstance(became, Requeue):
        return Word(execution, True, became.why, became.kind.value)
    return Word(execution, False, became.why)


def _refused(evidence: Evidence, what: Decision) -> Word:
    execution = evidence.stall.execution
    hint = ""
    if isinstance(what, Quarantine):
        hint = "mend the cause, then requeue it by --force"
    elif isinstance(what, Leave) and what.kind is not None and evidence.stall.recovery != "off":
        hint = "--force requeues it now"
    elif isinstance(what, Settle):
        return Word(execution, False, "it succeeded, and Airflow knows")
    return Word(execution, False, what.why, hint=hint)


def _tell(options: argparse.Namespace, words: Sequence[Word]) -> int:
    done = [word for word in words if word.done]
    value: dict[str, Any] = {
        "run": str(options.RUN),
        "preview": options.preview,
        "requeued": [_plain(word) for word in done],
        "left": [_plain(word) for word in words if not word.done],
    }
    verb = "would be requeued" if options.preview else "requeued"
    rows = [(_task(word), verb if word.done else "left", f"{word.why}{_hint(word)}") for word in words]
    head = f"{options.RUN}: {len(done)} of {len(words)} durable tasks {verb}"
    show(options, value, f"{head}\n{table(rows)}")
    return OK if done else FINDING


def _task(word: Word) -> str:
    return task_names([(word.execution.task_id, word.execution.map_index)])


def _hint(word: Word) -> str:
    return f" ({word.hint})" if word.hint else ""


def _plain(word: Word) -> dict[str, Any]:
    return {
        "task_id": word.execution.task_id,
        "map_index": word.execution.map_index,
        "kind": word.kind,
        "why": word.why,
        "hint": word.hint,
    }
