"""The embedded Airflow: runs DAGs, keeps to loopback, survives kills of its parts, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_aiflow.local.airflow_client import AirflowApiError, AirflowClient, wait_for
from airflow_aiflow.local.env_file import read_env
from airflow_aiflow.local.stack import Stack, StackPlan

PATIENCE = 120.0
DAGS = Path(__file__).parent / "dags"


@pytest.fixture(scope="module")
def airflow_stack() -> Iterator[Stack]:
    """Give a stack of this module's own: its parts are killed, and its mails and records are counted from none."""
    folder = Path(tempfile.mkdtemp(prefix="aiflow-own-"))
    shutil.copytree(DAGS, folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    with Stack(StackPlan(home=folder / "stack", dags_folder=folder / "dags")) as stack:
        yield stack
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def client(airflow_stack: Stack) -> AirflowClient:
    client = airflow_stack.airflow.client()
    for dag_id in ("stack_chain", "stack_waits", "stack_connections"):
        client.wait_for_dag(dag_id, PATIENCE)
    return client


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def waiting_pids(folder: Path, attempt: int) -> tuple[int, int]:
    """Wait until the task `wait` began so often, and give its pid and its supervisor's."""

    def look() -> tuple[int, int] | None:
        lines = (folder / "pids").read_text().splitlines() if (folder / "pids").exists() else []
        if len(lines) < attempt:
            return None
        pid, parent = lines[attempt - 1].split()
        return int(pid), int(parent)

    return wait_for(look, f"attempt {attempt}", PATIENCE)


def succeeds(client: AirflowClient, dag_id: str, run_id: str) -> None:
    """Wait for the end of a run; where it failed, show why."""
    if client.wait_for_run(dag_id, run_id, PATIENCE) == "success":
        return
    failed = [each for each in client.task_instances(dag_id, run_id) if each["state"] != "success"]
    logs = [
        f"{each['task_id']} try {number}:\n{client.logs(dag_id, run_id, each['task_id'], number)}"
        for each in failed
        for number in range(1, each["try_number"] + 1)
    ]
    pytest.fail("\n".join(logs))


def test_a_dag_runs(client: AirflowClient) -> None:
    run_id = client.trigger("stack_chain")
    succeeds(client, "stack_chain", run_id)
    assert client.xcom("stack_chain", run_id, "add_4") == 5
    assert "adding to 3" in client.logs("stack_chain", run_id, "add_3")


def test_retries_tries_and_clears(client: AirflowClient) -> None:
    run_id = client.trigger("stack_chain", {"fail_first": True}, run_id="odd.~:+-_id")
    succeeds(client, "stack_chain", run_id)
    tries = client.tries("stack_chain", run_id, "add_0")
    assert [(each["try_number"], each["state"]) for each in tries] == [(1, "failed"), (2, "success")]
    cleared = client.clear("stack_chain", run_id, "add_4")
    assert [each["task_id"] for each in cleared] == ["add_4"]
    succeeds(client, "stack_chain", run_id)
    assert client.task_instance("stack_chain", run_id, "add_4")["try_number"] == 3
    client.delete_run("stack_chain", run_id)
    with pytest.raises(AirflowApiError, match="404"):
        client.run("stack_chain", run_id)


def test_each_connection_works_in_a_task(airflow_stack: Stack, client: AirflowClient) -> None:
    run_id = client.trigger("stack_connections")
    succeeds(client, "stack_connections", run_id)
    instances = client.task_instances("stack_connections", run_id)
    logs = {each["task_id"]: client.logs("stack_connections", run_id, each["task_id"]) for each in instances}
    assert client.xcom("stack_connections", run_id, "ledger") == ["aiflow"]
    assert client.xcom("stack_connections", run_id, "model") == "The tenant pays on the first day."
    assert airflow_stack.model.requests()[-1].answered
    assert [str(mail["Subject"]) for mail in airflow_stack.mail.mails()] == ["From a task"]
    assert [record["key"] for record in airflow_stack.records.records()] == ["from-a-task"]
    passwords = [airflow_stack.airflow.admin_password, airflow_stack.postgres.password("aiflow")]
    assert not [task for task, log in logs.items() for word in passwords if word in log]


def test_provider_and_plugin_are_found_by_their_entry_points(client: AirflowClient) -> None:
    providers = client.request("GET", "/providers", params={"limit": 200})["providers"]
    assert [each["package_name"] for each in providers].count("airflow-aiflow") == 1
    plugins = client.request("GET", "/plugins", params={"limit": 200})["plugins"]
    assert [each["name"] for each in plugins].count("aiflow") == 1
    assert client.request("GET", "/plugins/importErrors")["import_errors"] == []
    assert client.import_errors() == []


def test_listens_on_loopback_only(airflow_stack: Stack) -> None:
    addresses = set()
    for part in airflow_stack.parts().values():
        for process in [psutil.Process(part.pid), *family(part.pid)]:
            try:
                connections = process.net_connections("inet")
            except psutil.NoSuchProcess:
                continue
            addresses |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert addresses == {"127.0.0.1"}


def test_no_secret_stands_in_a_command_line_or_in_the_environment_of_a_process(airflow_stack: Stack) -> None:
    server = airflow_stack.postgres
    words = [server.password("aiflow"), server.password("airflow"), airflow_stack.airflow.admin_password]
    for process in [psutil.Process(airflow_stack.airflow.pid), *family(airflow_stack.airflow.pid)]:
        try:
            shown = " ".join([*process.cmdline(), *process.environ().values()])
        except psutil.Error:
            continue
        assert not [word for word in words if word in shown]


def test_the_log_of_a_running_task_is_shown(client: AirflowClient, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    run_id = client.trigger("stack_waits", {"folder": str(tmp_path)})
    waiting_pids(tmp_path, 1)

    def said() -> str | None:
        log = client.logs("stack_waits", run_id, "wait")
        return log if "waiting for the file" in log else None

    wait_for(said, "the line in the log", PATIENCE)
    assert client.task_instance("stack_waits", run_id, "wait")["state"] == "running"
    (tmp_path / "go").touch()
    succeeds(client, "stack_waits", run_id)


def test_a_killed_task_is_tried_again(client: AirflowClient, tmp_path: Path) -> None:
    run_id = client.trigger("stack_waits", {"folder": str(tmp_path)})
    pid, _ = waiting_pids(tmp_path, 1)
    os.kill(pid, signal.SIGKILL)
    waiting_pids(tmp_path, 2)
    (tmp_path / "go").touch()
    succeeds(client, "stack_waits", run_id)
    assert client.task_instance("stack_waits", run_id, "wait")["try_number"] == 2


@pytest.mark.parametrize("name", ["scheduler", "api-server", "dag-processor", "triggerer"])
def test_a_killed_component_is_started_again(
    airflow_stack: Stack, client: AirflowClient, tmp_path: Path, name: str
) -> None:
    """With the scheduler die its workers and the tasks under them, as they do under a service manager."""
    run_id = client.trigger("stack_waits", {"folder": str(tmp_path)})
    task_pid, worker_pid = waiting_pids(tmp_path, 1)
    task, worker = psutil.Process(task_pid), psutil.Process(worker_pid)
    before = airflow_stack.airflow.components()
    os.kill(before[name], signal.SIGKILL)
    after = wait_for(
        lambda: now if (now := airflow_stack.airflow.components()).get(name) != before[name] else None, name, PATIENCE
    )
    assert {each: pid for each, pid in after.items() if each != name} == {
        each: pid for each, pid in before.items() if each != name
    }
    if name == "scheduler":
        psutil.wait_procs([task, worker], timeout=20)
        assert not alive(task)
        assert not alive(worker)
    (tmp_path / "go").touch()

    def ended() -> str | None:
        # The API server may be the one that is away.
        try:
            state = str(client.run("stack_waits", run_id)["state"])
        except OSError:
            return None
        return state if state in ("success", "failed") else None

    assert wait_for(ended, "the run", PATIENCE) == "success"


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aiflow crash%20ü-"))
    yield folder
    subprocess.run([*command("down", folder)], check=True, capture_output=True, timeout=120)
    shutil.rmtree(folder)


def command(word: str, home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "airflow_aiflow.cli", word, "--home", str(home / "state"), "--json", *words]


def up(home: Path) -> dict[str, Any]:
    answer = subprocess.run(
        command("up", home, "--detach", "--dags", str(DAGS)), capture_output=True, text=True, timeout=240, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr + (home / "state" / "stack.log").read_text()
    value: dict[str, Any] = json.loads(answer.stdout)
    return value


def stack_client(home: Path, status: dict[str, Any]) -> AirflowClient:
    address = next(part["address"] for part in status["parts"] if part["name"] == "airflow")
    fields = json.loads(read_env(home / "state" / "env")["AIRFLOW_CONN_AIFLOW_API"])
    return AirflowClient(address, fields["login"], fields["password"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_crash_of_owner_and_keeper_at_once_blocks_nothing(home: Path, tmp_path: Path) -> None:
    """What then stays of Airflow, executor workers and their tasks, is cleared away by the next start."""
    first = up(home)
    client = stack_client(home, first)
    client.wait_for_dag("stack_waits", PATIENCE)
    run_id = client.trigger("stack_waits", {"folder": str(tmp_path)})
    task_pid, _ = waiting_pids(tmp_path, 1)
    keeper = next(part["pid"] for part in first["parts"] if part["name"] == "airflow")
    everything = [psutil.Process(first["pid"]), *family(first["pid"])]
    assert task_pid in {process.pid for process in everything}
    for pid in (first["pid"], keeper):
        os.kill(pid, signal.SIGSTOP)
    for pid in (first["pid"], keeper):
        os.kill(pid, signal.SIGKILL)

    second = up(home)
    psutil.wait_procs(everything, timeout=20)
    assert [str(process) for process in everything if alive(process)] == []
    assert [part["address"] for part in second["parts"]] == [part["address"] for part in first["parts"]]
    (tmp_path / "go").touch()
    # The run of the killed stack is still there, and goes on.
    succeeds(stack_client(home, second), "stack_waits", run_id)

    ended = [psutil.Process(second["pid"]), *family(second["pid"])]
    subprocess.run(command("down", home), check=True, capture_output=True, timeout=120)
    psutil.wait_procs(ended, timeout=20)
    assert [str(process) for process in ended if alive(process)] == []
