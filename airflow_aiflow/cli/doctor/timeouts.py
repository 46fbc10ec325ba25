"""Airflow's own time-outs against ours, as far as this machine's configuration tells them."""

from __future__ import annotations

from airflow_aiflow.cli.doctor.finding import Finding, ok, warning

#: Seconds that the note about a success gets in the task process, with room for other listeners.
HEARD_ROOM = 5.0


def heartbeat_timeout(timeout: float, lease_ttl: float) -> Finding:
    """
    Compare what Airflow takes for a dead task with what we take for one.

    :param timeout: ``[scheduler] task_instance_heartbeat_timeout``, in seconds.
    :param lease_ttl: ours, in seconds.
    """
    found = f"task_instance_heartbeat_timeout {timeout:g} s, lease_ttl {lease_ttl:g} s"
    if timeout > lease_ttl:
        return ok(f"{found}: recovery finds a dead worker before Airflow does")
    return warning(
        found,
        "Airflow gives a dead worker's task up before its lease lapses: a retry is burnt that recovery would save",
        f"AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT=300 for the scheduler (at least {2 * lease_ttl:g})",
    )


def detection(timeout: float, interval: float, orphans: float) -> Finding:
    """
    Say when Airflow finds a dead task by itself.

    :param timeout: ``[scheduler] task_instance_heartbeat_timeout``, in seconds.
    :param interval: ``[scheduler] task_instance_heartbeat_timeout_detection_interval``, in seconds.
    :param orphans: ``[scheduler] orphaned_tasks_check_interval``, in seconds.
    """
    found = (
        f"without recovery a dead worker is found after {timeout:g} to {timeout + interval:g} s, the tasks of a dead "
        f"scheduler after up to {orphans:g} s"
    )
    if 0 < interval <= timeout:
        return ok(found)
    return warning(
        f"task_instance_heartbeat_timeout_detection_interval is {interval:g} s",
        "where recovery does not run, dead tasks stay for longer than their heartbeat's time-out",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL=10",
    )


def success_overtime(seconds: float) -> Finding:
    """
    Look at the time that a task process gets after its success.

    :param seconds: ``[core] task_success_overtime``.
    """
    if seconds >= HEARD_ROOM:
        return ok(f"task_success_overtime {seconds:g} s: enough to note that Airflow heard of a success")
    return warning(
        f"task_success_overtime is {seconds:g} s",
        "a process may end before it noted that Airflow heard of its success: a clear then replays all of it",
        "AIRFLOW__CORE__TASK_SUCCESS_OVERTIME=20, on every worker",
    )


def supervisor(failures: float, interval: float, lease_ttl: float) -> Finding:
    """
    Say for how long a task lives without the API server.

    :param failures: ``[workers] max_failed_heartbeats``.
    :param interval: ``[workers] min_heartbeat_interval``, in seconds.
    :param lease_ttl: ours, in seconds.
    """
    outlives = failures * interval
    found = f"a task is ended by its supervisor after about {outlives:g} s without Airflow's API server"
    if outlives >= lease_ttl / 2:
        return ok(f"{found} (max_failed_heartbeats {failures:g}, min_heartbeat_interval {interval:g} s)")
    return warning(
        found,
        "a short restart of the API server kills every task in mid-step: what was in hand is paid again",
        f"AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS={max(3, round(60 / max(interval, 1))):d}, on every worker",
    )
