"""The DAG files that a stack's recovery DAG comes from."""

from __future__ import annotations

from pathlib import Path

#: What users copy.
SHIPPED = Path(__file__).parents[2] / "dags" / "aiflow_recovery.py"

#: The same with what takes a minute or more scaled down, and with alerts by mail.
SHORT = """
from airflow.providers.smtp.notifications.smtp import SmtpNotifier

from airflow_aiflow.recovery import recovery_dag

dag = recovery_dag(
    notify=[SmtpNotifier(to="ops@example.com")],
    unheard_after=10, lost_after=10, queued_after=10, alive_grace=10,
)
"""

#: One more beside it, with nobody to tell.
SECOND = """
from airflow_aiflow.recovery import recovery_dag

dag = recovery_dag(dag_id="aiflow_recovery_2", unheard_after=10, lost_after=10, queued_after=10, alive_grace=10)
"""
