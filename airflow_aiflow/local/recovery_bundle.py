"""
Give the stack's Airflow the recovery DAG, in a bundle of its own: the folder of DAG files is the user's.

Where a file of the user's makes one, that one counts: two DAGs of one name in two bundles would replace each other.
"""

from __future__ import annotations

import json
from pathlib import Path

RECOVERY_DAG = '''"""Find stalled runs and bring each home once."""

from airflow_aiflow.recovery import recovery_dag

dag = recovery_dag()
'''

_LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


def recovery_options(folder: Path, dags_folder: Path) -> dict[str, str]:
    """
    Write the DAG and give the options of Airflow that make it known.

    :param folder: Airflow's home.
    :param dags_folder: where the user's DAG files are.
    :return: by ``section.name``; empty where the user has a recovery DAG.
    """
    if has_recovery_dag(dags_folder):
        return {}
    own = folder / "recovery-dag"
    own.mkdir(parents=True, exist_ok=True)
    (own / "aiflow_recovery.py").write_text(RECOVERY_DAG, encoding="utf-8")
    bundles = [
        {"name": "dags-folder", "classpath": _LOCAL_BUNDLE, "kwargs": {}},
        {"name": "aiflow-recovery", "classpath": _LOCAL_BUNDLE, "kwargs": {"path": str(own)}},
    ]
    return {"dag_processor.dag_bundle_config_list": json.dumps(bundles)}


def has_recovery_dag(dags_folder: Path) -> bool:
    """
    Say whether a file of the user's makes a recovery DAG.

    :param dags_folder: where the user's DAG files are.
    """
    return any("recovery_dag(" in file.read_text(errors="replace") for file in dags_folder.rglob("*.py"))
