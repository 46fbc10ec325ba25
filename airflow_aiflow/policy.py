"""
A cluster policy that tells Airflow's API server which task ``@result`` marks.

Airflow 3.3 keeps the mark where the DAG file is read, and with each run's result; the serialised DAG, which is all that
the API server has before a run, does not hold it. So the DAG processor writes it there, by this policy, as the label of
an edge between what are no tasks: nothing draws it, and no task can have that name. Every component imports this:
nothing heavy may stand here.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import pluggy

#: Where the mark stands among a DAG's edges; the colon is what no task id has.
RESULT_EDGE: Final = "aiflow:result"

_hookimpl = pluggy.HookimplMarker("airflow.policy")


@_hookimpl
def dag_policy(dag: Any) -> None:
    """
    Write down which task gives the result.

    :param dag: as its file has made it.
    """
    try:
        for task in dag.tasks:
            if getattr(task, "returns_dag_result", False):
                dag.set_edge_info(RESULT_EDGE, task.task_id, {"label": "result"})
    except Exception:  # whatever is wrong, a policy that raises would take the DAG from Airflow
        logging.getLogger(__name__).exception("aiflow: the API server won't know which task gives the result")


def marked_tasks(dag: Any) -> list[str]:
    """
    Give the tasks that ``@result`` marks, as a serialised DAG tells it.

    :param dag: as Airflow's servers have it.
    :return: empty: none is marked, or this policy was not there when the DAG was read.
    """
    noted = (dag.edge_info or {}).get(RESULT_EDGE, {})
    # A release of Airflow that serialises the mark itself has it on the task.
    return [
        str(each.task_id) for each in dag.tasks if each.task_id in noted or getattr(each, "returns_dag_result", False)
    ]
