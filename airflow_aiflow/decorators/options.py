"""The options of a durable task, checked while the DAG file is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from airflow_aiflow.durable.attempt import OnClear, Recovery
from airflow_aiflow.durable.budget import Budget, read_budget
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.policy import seconds
from airflow_aiflow.exceptions import AiflowConfigError, FlowOptionError
from airflow_aiflow.hooks.attempt import check_on_clear

#: Labels of a task, and characters of a name or a value: as of a submission. They are read in lists and typed by hand.
LABELS, LABEL_LENGTH = 20, 100

RECOVERIES: tuple[Recovery, ...] = get_args(Recovery)


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """
    Hold the checked options of one durable task.

    :param on_clear: what a cleared task does; ``None``: the deployment's word.
    :param step_timeout: seconds that a step without a ``timeout`` of its own may take; ``None``: no limit.
    :param lease: the task's own lease; ``None``: the deployment's.
    :param share_mapped: whether a mapped task may take over what its siblings recorded before a clear.
    :param compensate_on_failure: whether effects with ``compensate=`` are taken back where the task fails for good.
    :param recovery: how recovery brings the task back where it stalls.
    :param max_recoveries: how often; ``None``: the deployment's word.
    :param budget: of the task's model calls; ``None``: no limit.
    :param labels: names and values to find its runs by.
    """

    on_clear: OnClear | None = None
    step_timeout: float | None = None
    lease: LeaseRules | None = None
    share_mapped: bool = True
    compensate_on_failure: bool = False
    recovery: Recovery = "auto"
    max_recoveries: int | None = None
    budget: Budget | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def task_options(given: Mapping[str, Any]) -> TaskOptions:
    """
    Read keywords of a durable task.

    :param given: keywords; those that are none of ours are Airflow's and are left alone.
    :raises FlowOptionError: if a value is not allowed.
    """
    return TaskOptions(
        on_clear=None if given.get("on_clear") is None else check_on_clear(given["on_clear"]),
        step_timeout=None if given.get("step_timeout") is None else seconds(given["step_timeout"], "step_timeout"),
        lease=None if given.get("lease") is None else _lease(given["lease"]),
        share_mapped=_yes_or_no("share_mapped", given.get("share_mapped", True)),
        compensate_on_failure=_yes_or_no("compensate_on_failure", given.get("compensate_on_failure", False)),
        recovery=_recovery(given.get("recovery", "auto")),
        max_recoveries=_max_recoveries(given.get("max_recoveries")),
        budget=read_budget(given.get("budget")),
        labels=_labels(given.get("labels")),
    )


def _lease(value: Any) -> LeaseRules:
    try:
        return LeaseRules.of_ttl(seconds(value, "lease"))
    except AiflowConfigError as error:
        raise FlowOptionError(f"lease={value!r}: {error}") from None


def _labels(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FlowOptionError(f"labels must be a dict of short texts, such as {{'team': 'legal'}}, got {value!r}")
    if len(value) > LABELS:
        raise FlowOptionError(f"labels: at most {LABELS} are kept, got {len(value)}")
    for name, text in value.items():
        if not (_is_short(name) and name and "=" not in name):
            raise FlowOptionError(
                f"labels: a name is a text of 1 to {LABEL_LENGTH} characters without '=', got {name!r}"
            )
        if not _is_short(text):
            raise FlowOptionError(f"labels: {name!r} must be a text of at most {LABEL_LENGTH} characters, got {text!r}")
    return dict(value)


def _is_short(text: Any) -> bool:
    """Say whether a text is one that the ledger can keep, and short."""
    return (
        isinstance(text, str)
        and len(text) <= LABEL_LENGTH
        and not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in text)
    )


def _yes_or_no(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise FlowOptionError(f"{option} must be True or False, got {value!r}")
    return value


def _recovery(value: Any) -> Recovery:
    for word in RECOVERIES:
        if value == word:
            return word
    raise FlowOptionError(f"recovery must be 'auto', 'rerun', 'resume', 'careful' or 'off', got {value!r}")


def _max_recoveries(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise FlowOptionError(f"max_recoveries must be a whole number from 0, got {value!r}")
    return value
