"""`aiflow up | down | status` without Airflow: real processes, real crashes, real users."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from airflow_aiflow.local.env_file import read_env
from airflow_aiflow.storage import migrate


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a home with a short path; whatever still runs in it ends with the test."""
    folder = Path(tempfile.mkdtemp(prefix="aiflow-up-"))
    yield folder / "state"
    aiflow("down", home=folder / "state")
    shutil.rmtree(folder)


def aiflow(*words: str, home: Path, python: str = sys.executable, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "airflow_aiflow.cli", words[0], "--home", str(home), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def up(home: Path, *words: str, **options: Any) -> dict[str, Any]:
    answer = aiflow("up", "--no-airflow", "--detach", "--json", *words, home=home, **options)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    value: dict[str, Any] = json.loads(answer.stdout)
    return value


def family(pid: int) -> list[psutil.Process]:
    owner = psutil.Process(pid)
    return [owner, *owner.children(recursive=True)]


def left_alive(processes: list[psutil.Process]) -> list[str]:
    _, alive = psutil.wait_procs(processes, timeout=20)
    return [str(each) for each in alive if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def test_up_status_down(home: Path) -> None:
    started = up(home)
    assert started["state"] == "running"
    assert {part["name"] for part in started["parts"]} == {"postgres", "objectstore", "model", "mail", "records"}
    processes = family(started["pid"])

    status = aiflow("status", "--json", home=home)
    assert status.returncode == 0
    assert all(part["healthy"] for part in json.loads(status.stdout)["parts"])

    environment = read_env(home / "env")
    fields = json.loads(environment["AIRFLOW_CONN_AIFLOW_LEDGER"])
    dsn = f"postgresql://{fields['login']}:{fields['password']}@{fields['host']}:{fields['port']}/{fields['schema']}"
    migrate.check(dsn)

    for detach in ([], ["--detach"]):
        (home / "stack.log").write_text("a line of the running stack")
        again = aiflow("up", "--no-airflow", *detach, home=home)
        assert again.returncode == 1
        assert f"a stack is running in {home} (process {started['pid']})" in again.stderr
        assert (home / "stack.log").read_text() == "a line of the running stack"
    assert aiflow("status", home=home).returncode == 0, "the second start did not disturb the first"

    assert json.loads(aiflow("down", "--json", home=home).stdout)["was_running"] is True
    assert left_alive(processes) == []
    assert aiflow("status", home=home).returncode == 1
    assert aiflow("down", home=home).returncode == 0


def test_no_secret_is_shown(home: Path) -> None:
    up(home)
    fields = json.loads(read_env(home / "env")["AIRFLOW_CONN_AIFLOW_LEDGER"])
    shown = aiflow("status", "--json", home=home).stdout + (home / "stack.log").read_text()
    state = (home / "stack.json").read_text()
    for process in psutil.process_iter():
        with_secret = []
        try:
            with_secret = [word for word in process.cmdline() if fields["password"] in word]
        except psutil.Error:
            continue
        assert with_secret == []
    assert fields["password"] not in shown + state


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_the_foreground_ends_everything(home: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "airflow_aiflow.cli", "up", "--home", str(home), "--no-airflow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert any("environment for other programs" in line for line in owner.stdout)
        processes = family(owner.pid)
        assert len(processes) > 5
        owner.send_signal(number)
        owner.communicate(timeout=60)
    assert owner.returncode == 0
    assert left_alive(processes) == []


def test_a_killed_owner_leaves_nothing_and_the_next_start_works(home: Path) -> None:
    started = up(home)
    processes = family(started["pid"])
    os.kill(started["pid"], signal.SIGKILL)
    assert left_alive(processes) == []
    assert json.loads(aiflow("status", "--json", home=home).stdout)["state"] == "stopped"
    again = up(home)
    assert {part["address"] for part in again["parts"]} == {part["address"] for part in started["parts"]}


def test_a_part_that_dies_is_started_again(home: Path) -> None:
    started = up(home)
    for name in ("postgres", "model"):
        pid = next(part["pid"] for part in started["parts"] if part["name"] == name)
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while aiflow("status", home=home).returncode != 0:
        assert time.monotonic() < deadline
    log = (home / "stack.log").read_text()
    assert "postgres had ended and was started again" in log
    assert "model had ended and was started again" in log


def test_a_busy_port_is_reported(home: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        answer = aiflow("up", "--no-airflow", "--json", "--mail-port", str(port), home=home)
    assert answer.returncode == 1
    assert f"port {port} for the mail sink is in use" in json.loads(answer.stdout)["message"]
    assert aiflow("status", home=home).returncode == 1


def test_a_wished_port_is_taken(home: Path) -> None:
    with socket.socket() as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    started = up(home, "--records-port", str(port))
    assert next(part["address"] for part in started["parts"] if part["name"] == "records").endswith(f":{port}")


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = aiflow("up", "--detach", home=tmp_path / "file" / "state")
    assert answer.returncode == 1
    assert "choose another --home" in answer.stderr


def test_a_missing_dags_folder_is_refused(home: Path) -> None:
    answer = aiflow("up", "--detach", "--dags", "no-such-folder", home=home)
    assert answer.returncode == 1
    assert "--dags no-such-folder: there is no such folder" in answer.stderr


def test_a_missing_wheel_names_the_way_out(home: Path, tmp_path: Path) -> None:
    hide = tmp_path / "sitecustomize.py"
    hide.write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'aiosmtpd' else real(name, package)\n"
    )
    answer = aiflow("up", "--detach", home=home, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert answer.returncode == 1
    assert 'pip install "airflow-aiflow[local]"' in answer.stderr


def python_of(user: dict[str, Any]) -> tuple[str, dict[str, str]] | None:
    """Find a Python that another user can run with this checkout: this one, else the system's of the same release."""
    packages = f"{Path(psycopg.__file__).parents[1]}:{Path(__file__).parents[3]}"
    variables = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    release = f"python3.{sys.version_info.minor}"
    for python, more in ((sys.executable, {}), (f"/usr/bin/{release}", {"PYTHONPATH": packages})):
        environment = {**variables, **more}
        probe = [python, "-c", "import airflow_aiflow.local.stack, psycopg"]
        try:
            answer = subprocess.run(probe, capture_output=True, check=False, env=environment, **user)
        except OSError:
            continue
        if answer.returncode == 0:
            return python, environment
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_can_do_the_same() -> None:
    nobody = pwd.getpwnam("nobody")
    folder = Path(tempfile.mkdtemp(prefix="aiflow-user-"))
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    who: dict[str, Any] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": folder}
    try:
        found = python_of(who)
        if found is None:
            pytest.skip("this checkout lies in a folder that only root may enter")
        who |= {"python": found[0], "env": found[1]}
        started = up(folder / "state", **who)
        processes = family(started["pid"])
        assert {process.username() for process in processes} == {"nobody"}
        fields = json.loads(read_env(folder / "state" / "env")["AIRFLOW_CONN_AIFLOW_LEDGER"])
        login = {"host": fields["host"], "port": fields["port"], "dbname": fields["schema"]}
        with psycopg.connect(user=fields["login"], password=fields["password"], **login) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("aiflow",)
        assert aiflow("down", home=folder / "state", **who).returncode == 0
        assert left_alive(processes) == []
    finally:
        shutil.rmtree(folder)
