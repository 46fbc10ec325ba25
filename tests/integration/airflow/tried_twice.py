"""DAG files of one task whose operator is executed twice, as by a process that was started anew for the same try."""

from __future__ import annotations

from tests.integration.airflow.conftest import HEAD

#: Begins such a file: ``twice(Operator)(task_id=...)``; what the first time gave or raised is in ``seen``.
TWICE = (
    HEAD
    + """
from pydantic import BaseModel
from airflow_aiflow.operators import DurableAgentOperator, DurableLLMOperator

def twice(operator):
    class Again(operator):
        '''Be a task whose process was started anew for the same try.'''

        def execute(self, context):
            try:
                seen.append(super().execute(context))
            except Exception as error:
                seen.append(error)
            return super().execute(context)

    return Again
"""
)


def dag_of(*lines: str) -> str:
    """
    Write a DAG.

    :param lines: of its body.
    """
    body = "\n".join(f"    {line}" for line in lines)
    return f"""
@dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
def the_dag():
{body}

the_dag()
"""
