"""
Build an attempt from what a task process of Airflow can see.

The counters live in three places: id, try number and max tries on the task instance, retries on the task, clear number
and ``run_after`` on the run. Nothing here asks the metadata database, and nothing here rests on a logical date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from airflow_aiflow.durable.attempt import Attempt, Counters, OnClear, Recovery
from airflow_aiflow.durable.hold import freed
from airflow_aiflow.durable.identity import UNMAPPED, ExecutionId
from airflow_aiflow.exceptions import AiflowConfigError, FlowOptionError
from airflow_aiflow.hooks.upstream import upstream_digest

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_aiflow.durable.budget import Budget

ON_CLEAR: tuple[OnClear, ...] = get_args(OnClear)


def check_on_clear(value: object) -> OnClear:
    """
    Check an author's word on clearing.

    :param value: what was given.
    :raises FlowOptionError: if it is none of the three words.
    """
    for word in ON_CLEAR:
        if value == word:
            return word
    raise FlowOptionError(f"on_clear must be 'auto', 'resume' or 'fresh', got {value!r}")


def attempt_from_context(
    context: Context,
    *,
    on_clear: OnClear,
    share_mapped: bool = True,
    recovery: Recovery = "auto",
    max_recoveries: int | None = None,
    budget: Budget | None = None,
    labels: Mapping[str, str] | None = None,
) -> Attempt:
    """
    Describe the attempt that this process makes.

    :param context: Airflow's, of the running task.
    :param on_clear: the task's or the deployment's word; the run's own ``conf`` wins over it.
    :param share_mapped: whether a mapped task may take over what its siblings recorded before a clear.
    :param recovery: the task's word on recovery.
    :param max_recoveries: how often recovery may make it runnable again; ``None``: the deployment's word.
    :param budget: of the task's model calls; ``None``: no limit.
    :param labels: names and values to find its runs by.
    :raises AiflowConfigError: if the run's ``conf`` holds a word that is none.
    """
    from airflow_aiflow.runtime.process import this_owner

    ti, dag_run, task = context["ti"], context["dag_run"], context["task"]
    map_index = UNMAPPED if ti.map_index is None else ti.map_index
    execution = ExecutionId(ti.dag_id, ti.run_id, ti.task_id, map_index)
    return Attempt(
        execution=execution,
        counters=Counters(
            ti_id=ti.id,
            try_number=ti.try_number,
            max_tries=ti.max_tries,
            retries=int(task.retries or 0),
            clear_number=dag_run.clear_number or 0,
            run_after=None if dag_run.run_after is None else freed(dag_run.run_after),
        ),
        owner=this_owner(str(ti.id)),
        mapped=map_index != UNMAPPED,
        setup_or_teardown=bool(task.is_setup or task.is_teardown),
        on_clear=_of_run(dag_run.conf) or on_clear,
        share_mapped=share_mapped,
        upstream_digest=upstream_digest(ti, task, execution),
        recovery=recovery,
        max_recoveries=max_recoveries,
        budget=budget,
        labels=dict(labels or {}),
    )


def _of_run(conf: Mapping[str, Any] | None) -> OnClear | None:
    """Read ``conf={"aiflow": {"on_clear": ...}}`` of a run."""
    ours = (conf or {}).get("aiflow")
    if ours is None:
        return None
    if not isinstance(ours, Mapping):
        raise AiflowConfigError(
            f"the run's conf holds {{'aiflow': {ours!r}}}; it must be an object such as {{'on_clear': 'fresh'}}"
        )
    word = ours.get("on_clear")
    if word is None:
        return None
    try:
        return check_on_clear(word)
    except FlowOptionError as error:
        raise AiflowConfigError(f"the run's conf, 'aiflow': {error}") from None
