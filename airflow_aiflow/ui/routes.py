"""Where the pages are under Airflow's own: the last part of the address, `.../plugin/<route>`."""

from __future__ import annotations

TASK_ROUTE, RUN_ROUTE, DAG_ROUTE = "aiflow-task", "aiflow-run", "aiflow-dag"
HOME_ROUTE, INBOX_ROUTE = "aiflow", "aiflow-inbox"
