"""Airflow as its REST API shows it: whether it answers, lives, has our plugin, and whether recovery runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_aiflow.cli.doctor.finding import Finding, error, ok, warning
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.storage.ledger_probe import ClockFacts

if TYPE_CHECKING:
    from airflow_aiflow.hooks.airflow_api import AirflowApi

#: Seconds since the end of the last recovery run after which nobody looks any more: a run follows the other at once.
IDLE = 300.0

#: Seconds after which a recovery run that still runs counts as stuck: it ends by itself after an hour.
STUCK = 2 * 3600.0

#: Parts of Airflow without which no task runs; without the others some do.
NEEDED = ("metadatabase", "scheduler")

#: A name in lists of plugins and the page of a registered one.
PLUGIN = "aiflow"

PLUGINS_OF_A_PAGE = 100


def answers(api: AirflowApi) -> Finding:
    """
    Ask for what recovery and the commands ask for.

    :param api: of the deployment.
    """
    version = api.request("GET", "/version")["version"]
    try:
        api.request("GET", "/dags", params={"limit": 1})
    except AirflowRefusedError as refused:
        return error(
            f"Airflow {version} at {api.base_url} answers, and refuses this user the list of DAGs ({refused.status})",
            "recovery can neither look nor clear",
            "give the user of the connection aiflow_api the right to read, clear and edit task instances (role Op)",
        )
    found = f"Airflow {version} answers at {api.base_url}"
    if _numbers(version) < (3, 3):
        return error(found, "durable tasks need Airflow 3.3 or newer", "upgrade Airflow")
    return ok(found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def clock(api: AirflowApi) -> ClockFacts:
    """
    Compare this machine's clock with the API server's, whose answers bear whole seconds, up to one second late.

    :param api: of the deployment.
    """
    before = datetime.now(UTC)
    api.request("GET", "/version")
    took = (datetime.now(UTC) - before).total_seconds()
    there = api.told_at or before
    return ClockFacts((before - there).total_seconds() + took / 2 - 1.0, took / 2 + 1.0)


def health(told: Mapping[str, Any]) -> Finding:
    """
    Look at Airflow's own parts.

    :param told: what ``/monitor/health`` answers.
    """
    states = {name: part.get("status") for name, part in told.items() if isinstance(part, dict)}
    ill = [name for name, status in states.items() if status == "unhealthy"]
    fix = f"start {', '.join(ill)} again: airflow {' or '.join(name.replace('_', '-') for name in ill)}"
    if any(name in NEEDED for name in ill):
        return error(f"unhealthy: {', '.join(ill)}", "no task starts, and none is recovered", fix)
    if ill:
        return warning(f"unhealthy: {', '.join(ill)}", "deferred tasks and new DAGs wait", fix)
    # A part that never ran has no state: a deployment without deferrable tasks has no triggerer.
    never = [name for name, status in states.items() if status is None]
    return ok("healthy" + (f"; never started: {', '.join(never)}" if never else ""))


def plugin(api: AirflowApi) -> Finding:
    """
    Look for our plugin in the API server.

    :param api: of the deployment.
    """
    page = api.request("GET", "/plugins", params={"limit": PLUGINS_OF_A_PAGE})
    if any(one["name"] == PLUGIN for one in page["plugins"]):
        return ok("the API server has loaded the plugin 'aiflow'")
    return warning(
        "the API server has not loaded the plugin 'aiflow'",
        "stored values can't be shown there; where workers lack it too, results can't be read back",
        "install airflow-aiflow for the API server, scheduler and triggerer too, and start them again",
    )


def execution_api(url: str) -> Finding:
    """
    Knock at the door that task processes use.

    :param url: ``[core] execution_api_server_url``, or what follows from the API's address.
    """
    import httpx

    try:
        answer = httpx.get(f"{url.rstrip('/')}/health", timeout=5.0)
        said = f"HTTP {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as why:
        answer, said = None, type(why).__name__
    if answer is not None and answer.status_code == 200:
        return ok(f"the execution API answers at {url}")
    return warning(
        f"the execution API at {url} gives {said}",
        "a task on this machine would not start",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL=http://HOST:PORT/execution/, as workers reach the API server",
    )


def recovery_dag(api: AirflowApi, dag_id: str) -> Finding:
    """
    Look for the recovery DAG.

    :param api: of the deployment.
    :param dag_id: its id.
    """
    try:
        dag = api.request("GET", f"/dags/{quote(dag_id, safe='')}")
    except AirflowRefusedError as refused:
        if refused.status != 404:
            raise
        return error(
            f"there is no DAG {dag_id}",
            "stalled runs are found by Airflow alone: after minutes, at the price of a retry, or never",
            "copy dags/aiflow_recovery.py into the DAG folder",
        )
    if dag.get("has_import_errors") or dag.get("is_stale"):
        return error(
            f"the DAG {dag_id} is not loaded any more: its file is gone, or can't be imported",
            "stalled runs are not found",
            "airflow dags list-import-errors",
        )
    if dag["is_paused"]:
        return error(f"the DAG {dag_id} is paused", "stalled runs are not found", f"airflow dags unpause {dag_id}")
    return ok(f"the DAG {dag_id} is there and not paused")


def recovery_runs(api: AirflowApi, dag_id: str) -> Finding:
    """
    Look when recovery looked last.

    :param api: of the deployment.
    :param dag_id: of the recovery DAG.
    """
    path = f"/dags/{quote(dag_id, safe='')}/dagRuns"
    try:
        runs = api.request("GET", path, params={"limit": 1, "order_by": "-run_after"})["dag_runs"]
    except AirflowRefusedError as refused:
        if refused.status != 404:
            raise
        runs = []
    now = api.told_at or datetime.now(UTC)
    return lately(dag_id, runs[0] if runs else None, now)


def lately(dag_id: str, run: Mapping[str, Any] | None, now: datetime) -> Finding:
    """
    Judge the latest run of recovery.

    :param dag_id: of the recovery DAG.
    :param run: as the API gives it; ``None``: there is none.
    :param now: by Airflow's clock.
    """
    fix = f"look at its task's log, and at the scheduler; then: airflow dags trigger {dag_id}"
    if run is None:
        return error(f"the DAG {dag_id} has never run", "stalled runs are not found", f"airflow dags unpause {dag_id}")
    begun = _age(run.get("start_date") or run.get("queued_at"), now)
    if run["state"] in ("running", "queued"):
        if begun is not None and begun > STUCK:
            return error(f"a run of {dag_id} hangs since {begun / 3600:.1f} h", "stalled runs are not found", fix)
        return ok(f"recovery is at work, since {begun or 0:.0f} s")
    ended = _age(run.get("end_date"), now)
    if ended is None or ended > IDLE:
        since = "a time that Airflow does not tell" if ended is None else f"{ended / 60:.0f} minutes"
        return error(f"no run of {dag_id} since {since}", "stalled runs are not found", fix)
    if run["state"] == "failed":
        return warning(f"the last run of {dag_id} failed {ended:.0f} s ago", "stalled runs are found late", fix)
    return ok(f"the last run of recovery ended {ended:.0f} s ago")


def _age(moment: str | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (now - datetime.fromisoformat(moment)).total_seconds())
