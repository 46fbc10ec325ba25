"""What Airflow learns of this package without importing the rest: connection type, decorators, options."""

from __future__ import annotations

from typing import Any

_VERSION_ADDED = "0.1.0"


def get_provider_info() -> dict[str, Any]:
    """Give the description that Airflow reads by the entry point ``apache_airflow_provider``."""
    return {
        "package-name": "airflow-aiflow",
        "name": "aiflow",
        "description": "Crash-safe AI pipelines: resume where a run stopped, pay for no model call twice, repeat no "
        "side effect silently.",
        "integrations": [{"integration-name": "aiflow", "external-doc-url": "", "tags": ["ai"]}],
        "hooks": [
            {
                "integration-name": "aiflow",
                "python-modules": ["airflow_aiflow.hooks.aiflow", "airflow_aiflow.hooks.minio"],
            }
        ],
        "connection-types": [_minio()],
        "task-decorators": [
            {"name": "durable", "class-name": "airflow_aiflow.decorators.durable.durable_task"},
            {"name": "effect", "class-name": "airflow_aiflow.decorators.effect.effect_task"},
            {"name": "durable_llm", "class-name": "airflow_aiflow.operators.prompt_task.durable_llm_task"},
            {"name": "durable_agent", "class-name": "airflow_aiflow.operators.prompt_task.durable_agent_task"},
        ],
        "extra-links": ["airflow_aiflow.links.AiflowTimelineLink"],
        "notifications": ["airflow_aiflow.notifications.notifier.AiflowNotifier"],
        "config": {
            "aiflow": {
                "description": "Options of airflow-aiflow. Every duration is in seconds unless it says days.",
                "options": _options(),
            }
        },
    }


def _minio() -> dict[str, Any]:
    return {
        "connection-type": "minio",
        "hook-name": "S3 server (minio SDK)",
        "hook-class-name": "airflow_aiflow.hooks.minio.MinioHook",
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {"login": "Access key", "password": "Secret key", "host": "Endpoint"},
            "placeholders": {
                "host": "s3.example.com, or http://127.0.0.1 for a server without TLS",
                "port": "9000",
                "login": "access key",
                "password": "secret key",
            },
        },
        "conn-fields": {
            "bucket": {
                "label": "Bucket",
                "description": "An existing bucket for the artifacts.",
                "schema": {"type": ["string", "null"]},
            },
            "prefix": {
                "label": "Prefix",
                "description": "Put before every object's name, so that deployments may share a bucket.",
                "schema": {"type": ["string", "null"]},
            },
            "region": {
                "label": "Region",
                "description": "Saves one request per process; us-east-1 where the server knows none.",
                "schema": {"type": ["string", "null"]},
            },
            "secure": {
                "label": "TLS",
                "description": "Whether to speak TLS; an endpoint that begins with http:// or https:// decides itself.",
                "schema": {"type": ["boolean", "null"]},
            },
            "public_url": {
                "label": "Public address",
                "description": "Where people's browsers reach the same server, when that is not the endpoint.",
                "schema": {"type": ["string", "null"]},
            },
        },
    }


def _option(kind: str, default: str, description: str, *, sensitive: bool = False) -> dict[str, Any]:
    option: dict[str, Any] = {
        "description": description,
        "version_added": _VERSION_ADDED,
        "type": kind,
        "example": None,
        "default": default,
    }
    if sensitive:
        option["sensitive"] = True
    return option


def _options() -> dict[str, Any]:
    return _connections() | _limits_and_policies() | _times() | _keeping() | _watching()


def _connections() -> dict[str, Any]:
    return {
        "ledger_conn_id": _option(
            "string", "aiflow_ledger", "Connection (postgres) of the ledger, the only source of truth."
        ),
        "artifacts_conn_id": _option(
            "string", "aiflow_artifacts", "Connection (minio or aws) of the artifact store for big values."
        ),
        "api_conn_id": _option(
            "string",
            "aiflow_api",
            "Connection (http; login and password, or a token) of Airflow's REST API, for recovery and clearing.",
        ),
        "default_llm_conn_id": _option("string", "pydanticai_default", "Connection of a model call that names none."),
    }


def _limits_and_policies() -> dict[str, Any]:
    return {
        "inline_limit": _option(
            "integer",
            "16384",
            "Bytes up to which a value stays in the ledger's row or in XCom; bigger ones go to the artifact store.",
        ),
        "on_clear": _option(
            "string",
            "auto",
            "What a cleared task does: resume (replay what is recorded), fresh (start anew; effects stay "
            "deduplicated), or auto (anew only where a person saw the success and cleared this very task).",
        ),
        "on_in_doubt": _option(
            "string",
            "ask",
            "What follows when an earlier call of an effect has no known outcome: ask (a person), hold (fail without "
            "burning retries until a person decided), retry (only for targets that deduplicate by our key).",
        ),
        "max_recoveries": _option(
            "integer", "5", "How often recovery makes one stalled task runnable again before it leaves it to people."
        ),
        "log_content": _option(
            "boolean", "False", "Whether requests and results are shown in the task log, with secrets masked."
        ),
        "record_arguments": _option(
            "boolean",
            "True",
            "Whether the beginning of each argument of a step is kept beside its result, with secrets masked.",
        ),
        "guard": _option("boolean", "True", "Whether a small process beside each task keeps its lease and cleans up."),
    }


def _times() -> dict[str, Any]:
    return {
        "heartbeat_interval": _option("float", "10", "Between two heartbeats of a running attempt."),
        "lease_ttl": _option(
            "float",
            "30",
            "For how long a heartbeat gives the right to work; must be more than twice heartbeat_interval.",
        ),
        "handover": _option(
            "float", "120", "How long a new attempt waits for a live one to record its unit in hand and let go."
        ),
        "busy_wait": _option(
            "float", "60", "How long a caller waits for another live task that is at work on the same effect."
        ),
        "start_within": _option(
            "float", "5", "An intent older than this before its call is settled as not applied instead of calling."
        ),
        "effect_timeout": _option("float", "60", "Time limit of one call of an effect that names none."),
        "in_doubt_timeout": _option(
            "float", "86400", "How long a question to a person stands before the task fails; the doubt stays open."
        ),
        "model_wait": _option(
            "float",
            "86400",
            "How long a task waits, over its reschedules, for a model that answers 'not now'; then it fails.",
        ),
        "reschedule_delay": _option(
            "float",
            "30",
            "Least time after which a task that gave its slot back comes again; below about 20 Airflow may fail it.",
        ),
        "shutdown_grace": _option(
            "float", "20", "On shutdown, how long a unit in hand may take to bring its outcome before it is left."
        ),
        "stall_floor": _option("float", "600", "Least time without progress after which a task counts as stalled."),
    }


def _keeping() -> dict[str, Any]:
    return {
        "submit_key_window_days": _option(
            "integer", "30", "Days for which a submission's idempotency key is remembered."
        ),
        "submits_per_minute": _option(
            "integer", "600", "Tasks that one user may hand in within a minute, over all API servers; 0: any number."
        ),
        "cancel_grace": _option(
            "float",
            "120",
            "How long attempts of a cancelled run may take to the end of their step before Airflow ends them.",
        ),
        "callback_hosts": _option(
            "string",
            "",
            "Comma-separated hosts to which callback_url may point (*.example.com, host:8443); empty: none.",
        ),
        "callback_secret": _option(
            "string",
            "",
            "Secret by which callbacks are signed, at least 32 characters.",
            sensitive=True,
        ),
        "upload_limit": _option("integer", "1073741824", "Largest upload in bytes; 0: uploads are off."),
        "retention_days": _option(
            "integer", "30", "Days for which other runs may reuse a result; recovery forgets where older ones lie."
        ),
        "spool_dir": _option(
            "string",
            "",
            "Directory for outcomes that can't reach the ledger; empty: aiflow-spool under AIRFLOW_HOME.",
        ),
        "payload_keys": _option(
            "string",
            "",
            "Comma-separated Fernet keys that encrypt payloads at rest; the first writes, all of them read.",
            sensitive=True,
        ),
        "seal_key": _option(
            "string",
            "",
            "Key of the seal that every record carries, at least 16 characters; empty: a plain hash.",
            sensitive=True,
        ),
    }


def _watching() -> dict[str, Any]:
    return {
        "metrics_token": _option(
            "string",
            "",
            "Token, at least 16 characters, by which a scraper reads /aiflow/metrics; empty: Airflow's users alone.",
            sensitive=True,
        ),
    }
