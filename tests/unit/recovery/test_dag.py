"""The recovery DAG as it stands in a DAG file, and what may be said in it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_aiflow.config import checked_overrides, recovery_policy
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.recovery import recovery_dag
from tests.unit.source_tree import ROOT


def test_one_run_is_always_active_and_no_failure_stops_it() -> None:
    dag = recovery_dag()
    assert type(dag.timetable).__name__ == "ContinuousTimetable"
    assert (dag.max_active_runs, dag.catchup, dag.max_consecutive_failed_dag_runs) == (1, False, 0)
    assert dag.is_paused_upon_creation is not True
    find, requeue = dag.get_task("find"), dag.get_task("requeue")
    assert find.downstream_task_ids == {"requeue"}
    assert (requeue.trigger_rule, find.retries, requeue.retries) == ("all_done", 0, 0)


def test_it_takes_no_workers_slot_while_it_waits() -> None:
    assert recovery_dag().get_task("find").start_from_trigger is True
    plain: Any = recovery_dag(deferrable=False, poll_interval=timedelta(seconds=30)).get_task("find")
    assert (plain.start_from_trigger, plain.mode, plain.poke_interval, plain.timeout) == (
        False,
        "reschedule",
        30.0,
        3600.0,
    )
    assert plain.soft_fail


def test_the_file_that_is_shipped_is_three_lines() -> None:
    text = (ROOT / "dags" / "aiflow_recovery.py").read_text()
    assert len([line for line in text.splitlines() if line and not line.startswith('"""')]) <= 3


def test_words_of_the_policy_reach_both_tasks() -> None:
    dag = recovery_dag(max_recoveries=3, backoff=timedelta(minutes=1), paused_dags=True, pool="recovery")
    wanted = {"max_recoveries": 3, "backoff": 60.0, "paused_dags": True}
    for task_id in ("find", "requeue"):
        task: Any = dag.get_task(task_id)
        assert (task.policy, task.pool) == (wanted, "recovery")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"max_recovery": 3}, "a recovery policy has no 'max_recovery'; it has stall_floor"),
        ({"backoff": -1}, "backoff must be a number, 0 or more, got -1"),
        ({"backoff": "1m"}, "backoff must be a number"),
        ({"paused_dags": 1}, "paused_dags must be True or False, got 1"),
        ({"rate_per_minute": True}, "rate_per_minute must be a number"),
    ],
)
def test_a_word_that_is_none_is_an_error_in_the_dag_file(words: dict[str, Any], message: str) -> None:
    with pytest.raises(AiflowConfigError, match=message):
        recovery_dag(**words)


def test_the_deployments_words_come_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__AIFLOW__STALL_FLOOR", "120")
    monkeypatch.setenv("AIRFLOW__AIFLOW__MAX_RECOVERIES", "0")
    monkeypatch.setenv("AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT", "1800")
    policy = recovery_policy({"backoff": 5})
    assert (policy.stall_floor, policy.max_recoveries, policy.backoff) == (120.0, 0, 5.0)
    assert policy.queued_after == 1800.0
    assert recovery_policy({"queued_after": 60}).queued_after == 60.0


def test_a_number_has_the_type_of_its_word() -> None:
    assert checked_overrides({"quarantine_after": 2.0, "backoff": 5}) == {"quarantine_after": 2, "backoff": 5.0}
