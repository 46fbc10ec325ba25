"""Find stalled runs and bring each home once. Alerts: ``recovery_dag(notify=[SmtpNotifier(to="ops@example.com")])``."""

from airflow_aiflow.recovery import recovery_dag

dag = recovery_dag()
