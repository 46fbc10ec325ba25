"""
The only reader of the ``[aiflow]`` configuration. Called when something runs, never at import.

Every option is declared, with its default, in ``get_provider_info``; a value that can't be used is an error that names
the option, so that a typing error never becomes a silent default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.policy import OnInDoubt
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AiflowConfigError

if TYPE_CHECKING:
    from airflow_aiflow.durable.callback import CallbackRules
    from airflow_aiflow.durable.pace import Pace

SECTION = "aiflow"

#: Shorter keys can be guessed; a random key of 16 characters of base64 holds 96 bits.
MIN_SEAL_KEY = 16

#: As for a seal's key: who guesses a token sees figures of the whole deployment.
MIN_METRICS_TOKEN = 16


def flow_settings() -> FlowSettings:
    """
    Read the settings of this deployment.

    :raises AiflowConfigError: if an option holds a value that can't be used; the message names both.
    """
    return FlowSettings(
        inline_limit=_whole("inline_limit", least=1),
        on_clear=_word("on_clear", OnClear),
        on_in_doubt=_word("on_in_doubt", OnInDoubt),
        effect_timeout=_seconds("effect_timeout"),
        handover=_seconds("handover", or_zero=True),
        busy_wait=_seconds("busy_wait", or_zero=True),
        start_within=_seconds("start_within"),
        reschedule_delay=_seconds("reschedule_delay"),
        in_doubt_timeout=_seconds("in_doubt_timeout"),
        model_wait=_seconds("model_wait"),
        shutdown_grace=_seconds("shutdown_grace"),
        spool_dir=_spool_dir(),
        seal_key=_seal_key(),
        payload_keys=_payload_keys(),
        default_llm_conn_id=_text("default_llm_conn_id"),
        ledger_conn_id=_text("ledger_conn_id"),
        artifacts_conn_id=_text("artifacts_conn_id"),
        api_conn_id=_text("api_conn_id"),
        log_content=_truth("log_content"),
        record_arguments=_truth("record_arguments"),
        guard=_truth("guard"),
        # Last, so that what can't be used besides is told as well.
        lease=LeaseRules(ttl=_seconds("lease_ttl"), interval=_seconds("heartbeat_interval")),
    )


def recovery_policy(overrides: Mapping[str, Any] | None = None) -> RecoveryPolicy:
    """
    Read the deployment's word on recovery.

    :param overrides: the recovery DAG's own words, by the names of the policy.
    :raises AiflowConfigError: if an option holds a value that can't be used, or a word is none of the policy's.
    """
    policy = RecoveryPolicy(
        stall_floor=_seconds("stall_floor"),
        max_recoveries=_whole("max_recoveries", least=0),
        reuse_kept=86_400.0 * _whole("retention_days", least=1),
    )
    policy = replace(policy, queued_after=max(policy.queued_after, _queued_timeout()))
    return replace(policy, **checked_overrides(overrides or {}))


def _queued_timeout() -> float:
    """Give Airflow's own time for a queued task: where its executor heeds it, Airflow comes first."""
    from airflow.sdk import conf

    return float(conf.getfloat("scheduler", "task_queued_timeout", fallback=0.0))


def heartbeat_timeout() -> float:
    """Read the seconds without a heartbeat after which Airflow alone takes a task for dead."""
    from airflow.sdk import conf

    return float(conf.getfloat("scheduler", "task_instance_heartbeat_timeout", fallback=300.0))


def checked_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """
    Check words of a recovery policy, for a DAG file: by name, and as a number that can be one.

    :param overrides: by the names of ``RecoveryPolicy``.
    :return: with durations in seconds.
    :raises AiflowConfigError: naming what can't be used.
    """
    known: dict[str, Any] = {field.name: field.default for field in fields(RecoveryPolicy)}
    found: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in known:
            raise AiflowConfigError(f"a recovery policy has no {name!r}; it has {', '.join(known)}")
        plain = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(known[name], bool):
            if not isinstance(plain, bool):
                raise AiflowConfigError(f"{name} must be True or False, got {value!r}")
        elif isinstance(plain, bool) or not isinstance(plain, int | float) or not plain >= 0:
            raise AiflowConfigError(f"{name} must be a number, 0 or more, got {value!r}")
        found[name] = type(known[name])(plain)
    return found


def submit_key_window() -> float:
    """
    Read for how many days a submission's key is one task's.

    :raises AiflowConfigError: if it is no whole number above 0.
    """
    return float(_whole("submit_key_window_days", least=1))


def submit_pace() -> Pace | None:
    """
    Read how many tasks one user may hand in within a minute; ``None``: any number.

    :raises AiflowConfigError: if it is no whole number from 0.
    """
    from airflow_aiflow.durable.pace import Pace

    number = _whole("submits_per_minute", least=0)
    return Pace(number) if number else None


def cancel_grace() -> float:
    """
    Read for how many seconds attempts may go on after their run was cancelled, up to the end of their step.

    :raises AiflowConfigError: if it is no number of seconds.
    """
    return _seconds("cancel_grace", or_zero=True)


def callback_rules() -> CallbackRules | None:
    """
    Read where callbacks may go; ``None``: nowhere.

    :raises AiflowConfigError: if hosts are named without a secret, or a name can't be one.
    """
    from airflow_aiflow.durable.callback import MIN_SECRET, CallbackRules

    hosts = tuple(host.strip().lower() for host in _read("callback_hosts").split(",") if host.strip())
    secret = _read("callback_secret").encode()
    if not hosts:
        return None
    for host in hosts:
        if not re.fullmatch(r"(\*\.)?[a-z0-9.-]+(:[0-9]{1,5})?", host):
            raise _wrong("callback_hosts", "names such as hooks.example.com, *.example.com or host:8443", host)
    if len(secret) < MIN_SECRET:
        raise _wrong("callback_secret", f"at least {MIN_SECRET} characters long", f"{len(secret)} of them")
    return CallbackRules(hosts, secret)


def upload_limit() -> int:
    """
    Read how large an upload may be, in bytes.

    :raises AiflowConfigError: if it is no whole number from 0; 0: uploads are off.
    """
    return _whole("upload_limit", least=0)


def metrics_token() -> bytes | None:
    """
    Read what a scraper of ``/aiflow/metrics`` must bear; ``None``: it is open to Airflow's users alone.

    :raises AiflowConfigError: if it is too short to be one.
    """
    token = _read("metrics_token").encode()
    if not token:
        return None
    if len(token) < MIN_METRICS_TOKEN:
        raise _wrong("metrics_token", f"at least {MIN_METRICS_TOKEN} characters long", f"{len(token)} of them")
    return token


def check_options() -> None:
    """
    Read every option, whichever part of the deployment it is for.

    :raises AiflowConfigError: at the first that holds a value that can't be used.
    """
    recovery_policy()
    submit_key_window()
    metrics_token()
    submit_pace()
    cancel_grace()
    callback_rules()
    upload_limit()
    # Last: what it complains of last, the lease, has a check of its own.
    flow_settings()


def _read(option: str) -> str:
    from airflow.sdk import conf

    # With the code in the plugins folder alone, Airflow has no provider to take the default from.
    return str(conf.get(SECTION, option, fallback=_declared(option))).strip()


def _declared(option: str) -> str:
    from airflow_aiflow.get_provider_info import get_provider_info

    return str(get_provider_info()["config"][SECTION]["options"][option]["default"] or "")


def _wrong(option: str, wanted: str, got: object) -> AiflowConfigError:
    return AiflowConfigError(
        f"[{SECTION}] {option} must be {wanted}, got {got!r}; set it in airflow.cfg or by "
        f"AIRFLOW__{SECTION.upper()}__{option.upper()}"
    )


def _text(option: str) -> str:
    text = _read(option)
    if not text:
        raise _wrong(option, "a connection id", text)
    return text


def _word(option: str, words: Any) -> Any:
    text = _read(option)
    allowed = get_args(words)
    if text not in allowed:
        raise _wrong(option, " or ".join([", ".join(allowed[:-1]), allowed[-1]]), text)
    return text


def _seconds(option: str, *, or_zero: bool = False) -> float:
    text = _read(option)
    wanted = "a number of seconds, 0 or more" if or_zero else "a number of seconds above 0"
    try:
        number = float(text)
    except ValueError:
        raise _wrong(option, wanted, text) from None
    if not (0 < number < float("inf") or (or_zero and number == 0)):
        raise _wrong(option, wanted, text)
    return number


def _whole(option: str, *, least: int) -> int:
    text = _read(option)
    try:
        number = int(text)
    except ValueError:
        raise _wrong(option, f"a whole number from {least}", text) from None
    if number < least:
        raise _wrong(option, f"a whole number from {least}", text)
    return number


def _truth(option: str) -> bool:
    words = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    text = _read(option)
    if text.lower() not in words:
        raise _wrong(option, "True or False", text)
    return words[text.lower()]


def _spool_dir() -> Path:
    text = _read("spool_dir")
    if text:
        path = Path(text).expanduser()
        if not path.is_absolute():
            raise _wrong("spool_dir", "an absolute path", text)
        return path
    return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser() / "aiflow-spool"


def _payload_keys() -> tuple[bytes, ...]:
    # Whether they are keys is checked where they are used: only there is the library known.
    return tuple(key.strip().encode() for key in _read("payload_keys").split(",") if key.strip())


def _seal_key() -> bytes | None:
    key = _read("seal_key").encode()
    if not key:
        return None
    if len(key) < MIN_SEAL_KEY:
        raise _wrong("seal_key", f"at least {MIN_SEAL_KEY} characters long", f"{len(key)} of them")
    return key
