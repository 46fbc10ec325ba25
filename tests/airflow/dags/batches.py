"""A batch whose process a test kills, and one of whose items fails until the test lets it pass."""

# A DAG file hands an XComArg on where a value is declared; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import datetime as dt

from airflow.sdk import dag, task

from airflow_aiflow.operators import BatchInferenceOperator

#: Calls that are long enough for a kill in their middle.
ITEMS = 60


@dag(schedule=None)
def batch_of_reviews():
    @task
    def reviews():
        return [{"id": f"r{n}", "text": f"Review {n} is long and kind."} for n in range(ITEMS)]

    BatchInferenceOperator(
        task_id="judge",
        items=reviews(),
        item_key="id",
        prompt="Is this good?\n\n{{ item.text }}",
        result_path="s3://aiflow/batches/{{ run_id }}/",
        on_item_error=0.1,
        max_item_attempts=1,
        max_workers=4,
        retries=3,
        retry_delay=dt.timedelta(seconds=1),
    )


batch_of_reviews()
