"""The configuration of the stack's Airflow, as environment variables: loopback, fixed secrets, quick reactions."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_aiflow.local.ports import LOOPBACK
from airflow_aiflow.local.private_file import read_json, write_json

ADMIN = "admin"
#: LocalExecutor forks all its workers at the start, 32 to 46 MB each.
PARALLELISM = 4


def stack_secrets(folder: Path) -> dict[str, str]:
    """Give Airflow's secrets, made at the first start: without fixed ones each component makes its own and is refused.

    :param folder: Airflow's home.
    """
    file = folder / "secrets.json"
    stored = read_json(file)
    if stored is None:
        stored = {
            "admin_password": secrets.token_urlsafe(15),
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "jwt_secret": secrets.token_hex(32),
            "api_secret_key": secrets.token_hex(32),
            "seal_key": secrets.token_hex(32),
        }
        write_json(file, stored)
    return {name: str(value) for name, value in stored.items()}


#: Seconds between two rounds of an idle scheduler: short enough for a brisk demo; 0.1 s takes a sixth of a core.
IDLE_SLEEP = "0.3"

#: Seconds until an unchanged DAG file is read again. A new or changed one is read at once all the same.
UNCHANGED_FILES = "30"


def airflow_options(
    folder: Path, dags_folder: Path, port: int, database_url: str, words: Mapping[str, str]
) -> dict[str, str]:
    """Give Airflow's options by ``section.name``.

    :param folder: Airflow's home.
    :param dags_folder: where the DAG files are.
    :param port: the API server's port.
    :param database_url: the metadata database, for SQLAlchemy.
    :param words: the secrets.
    """
    return {
        "core.executor": "LocalExecutor",
        "core.parallelism": str(PARALLELISM),
        "core.load_examples": "False",
        "core.dags_are_paused_at_creation": "False",
        "core.dags_folder": str(dags_folder),
        "core.plugins_folder": str(folder / "plugins"),
        "core.fernet_key": words["fernet_key"],
        "core.execution_api_server_url": f"http://{LOOPBACK}:{port}/execution/",
        "core.simple_auth_manager_users": f"{ADMIN}:{ADMIN}",
        "core.simple_auth_manager_passwords_file": str(folder / "passwords.json"),
        "core.hostname_callable": "airflow_aiflow.local.airflow_settings.hostname",
        "database.sql_alchemy_conn": database_url,
        "api.host": LOOPBACK,
        "api.port": str(port),
        "api.base_url": f"http://{LOOPBACK}:{port}",
        "api.workers": "1",
        "api.secret_key": words["api_secret_key"],
        "api_auth.jwt_secret": words["jwt_secret"],
        "scheduler.scheduler_idle_sleep_time": IDLE_SLEEP,
        "scheduler.enable_health_check": "False",
        # A supervisor that misses the exit of its task by a hair notices it one interval later (5 s by default), and
        # its slot is not free before.
        "workers.min_heartbeat_interval": "1",
        # So a task outlives an API server that is started again (3 failures by default, at 5 s each), and a slow one.
        "workers.max_failed_heartbeats": "20",
        "workers.execution_api_timeout": "30",
        # Killed supervisors are noticed after half a minute instead of five (seconds: time-out, look, adoption).
        "scheduler.task_instance_heartbeat_timeout": "30",
        "scheduler.task_instance_heartbeat_timeout_detection_interval": "5",
        "scheduler.orphaned_tasks_check_interval": "20",
        "dag_processor.min_file_process_interval": UNCHANGED_FILES,
        "dag_processor.refresh_interval": "5",
        "logging.base_log_folder": str(folder / "task-logs"),
        "logging.dag_processor_child_process_log_directory": str(folder / "logs" / "dag-processor"),
        "usage_data_collection.enabled": "False",
        "aiflow.seal_key": words["seal_key"],
    }


def hostname() -> str:
    """Give the name under which this machine's task logs are looked for."""
    return LOOPBACK


def as_environment(options: Mapping[str, str]) -> dict[str, str]:
    """Turn options by ``section.name`` into Airflow's environment variables."""
    variables = {}
    for option, value in options.items():
        section, _, name = option.partition(".")
        variables[f"AIRFLOW__{section.upper()}__{name.upper()}"] = value
    return variables


def connections_as_environment(connections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Turn connections by id into Airflow's environment variables."""
    return {f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(fields) for conn_id, fields in connections.items()}


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Give an environment without another Airflow's settings, byte code allowed, no proxy for this machine.

    :param environment: what to start from.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("AIRFLOW") and name != "PYTHONDONTWRITEBYTECODE"
    }
    for name in ("no_proxy", "NO_PROXY"):
        kept[name] = ",".join(filter(None, [kept.get(name, ""), LOOPBACK, "localhost"]))
    return kept
