"""The demo's folder, the killing of a process tree, and a model's connection from the environment."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.demo.home import MARK, claimed, dag_file, prepare_home
from airflow_aiflow.demo.kill import kill_tree, kill_worker
from airflow_aiflow.demo.run import model_environment
from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.exceptions import AiflowConfigError, StackError
from airflow_aiflow.local import pid_file
from airflow_aiflow.local.stack import STATE_FILE
from airflow_aiflow.runtime.process import start_time, this_owner

#: A parent with a child; both hang until they are killed.
TREE = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
child.wait()
"""


def owner_of(pid: int) -> Owner:
    """Describe a process as the ledger would."""
    return replace(this_owner("ti"), pid=pid, start=start_time(pid) or 0)


@pytest.fixture
def tree() -> tuple[subprocess.Popen[str], psutil.Process]:
    """Give a process and its child."""
    process = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, psutil.Process(int(process.stdout.readline()))


def test_the_whole_tree_is_killed(tree: tuple[subprocess.Popen[str], psutil.Process]) -> None:
    process, child = tree
    assert kill_tree(owner_of(process.pid)) == 2
    assert process.wait(10) == -9
    assert psutil.wait_procs([child], timeout=10)[1] == []


def test_a_stranger_with_the_same_pid_is_left_alone(tree: tuple[subprocess.Popen[str], psutil.Process]) -> None:
    process, _ = tree
    owner = owner_of(process.pid)
    try:
        assert kill_tree(replace(owner, start=owner.start - 1)) == 0
        assert kill_tree(replace(owner, boot_id="another")) == 0
        assert process.poll() is None
    finally:
        assert kill_tree(owner) == 2
        process.wait(10)


def test_a_task_that_is_gone_is_no_kill() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    owner = owner_of(process.pid)
    process.wait(10)
    assert kill_tree(owner) == 0


def test_a_worker_is_killed_with_its_task_and_what_is_below(tmp_path: Path) -> None:
    """The task is the child of the one who watches it, and has a child itself."""
    watcher = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {TREE!r}]).wait()"
    process = subprocess.Popen([sys.executable, "-c", watcher], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    task = child.parent()
    assert task is not None
    assert task.ppid() == process.pid
    assert kill_worker(owner_of(task.pid)) == 3
    assert process.wait(10) == -9
    assert psutil.wait_procs([task, child], timeout=10)[1] == []


def test_the_copy_of_the_dag_may_have_no_retries(tmp_path: Path) -> None:
    [copy] = prepare_home(tmp_path, retries=0).iterdir()
    assert "@task.durable(retries=0, " in copy.read_text()
    assert copy.read_text().replace("retries=0", "retries=10") == dag_file().read_text()


def test_a_home_is_made_with_the_dag_in_it(tmp_path: Path) -> None:
    dags = prepare_home(tmp_path / "a" / "demo")
    assert [file.name for file in dags.iterdir()] == ["document_review.py"]
    assert (dags / "document_review.py").read_bytes() == dag_file().read_bytes()
    assert (tmp_path / "a" / "demo").stat().st_mode & 0o077 == 0


def test_a_former_demo_is_emptied(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "1.eml").write_text("x")
    prepare_home(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARK, "dags"]


def test_what_a_crashed_demo_left_running_is_ended(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    (tmp_path / "model").mkdir()
    left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    pid_file.remember(tmp_path / "model" / "server.json", left.pid)
    prepare_home(tmp_path)
    assert left.poll() is not None


def test_somebody_elses_folder_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(StackError, match="was not made by a demo"):
        prepare_home(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "x"


def test_a_running_demo_is_not_disturbed(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    pid_file.remember(tmp_path / STATE_FILE, psutil.Process().pid, state="running")
    with pytest.raises(StackError, match=r"a stack is running in .* end it with `aiflow down --home"):
        prepare_home(tmp_path)


def test_two_demos_that_start_at_once_do_not_meet(tmp_path: Path) -> None:
    with claimed(tmp_path):
        prepare_home(tmp_path)
        with pytest.raises(StackError, match="another demo is starting in"), claimed(tmp_path):
            pytest.fail("both have the folder")
        prepare_home(tmp_path)
    with claimed(tmp_path):
        pass


def test_a_folder_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(StackError, match=r"can't be used for the demo \(Not a directory\)"),
        claimed(tmp_path / "file" / "demo"),
    ):
        pytest.fail("there is no such folder")


def test_a_real_models_connection_is_passed_on_and_ours_are_not() -> None:
    environment = {
        "AIRFLOW_CONN_MY_MODEL": "{}",
        "AIRFLOW_CONN_ITS_FALLBACK": "{}",
        "AIRFLOW_CONN_SMTP_DEFAULT": "smtp://a.real.server",
        "AIRFLOW__CORE__EXECUTOR": "x",
        "HOME": "x",
    }
    assert set(model_environment("my_model", environment)) == {"AIRFLOW_CONN_MY_MODEL", "AIRFLOW_CONN_ITS_FALLBACK"}


def test_a_missing_connection_says_what_to_set() -> None:
    with pytest.raises(AiflowConfigError, match="Set AIRFLOW_CONN_MY_MODEL, for example to"):
        model_environment("my_model", {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "{tmp}/none"], "does not exist"),
        (["--input", "{tmp}/empty"], "there is no document in"),
        (["--kill-at", "sixty"], "'sixty' is no percentage"),
        (["--llm-conn-id", "nowhere"], "there is no such connection in the environment"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    home = tmp_path / "home"
    words = [word.replace("{tmp}", str(tmp_path)) for word in arguments]
    assert main(["demo", "--home", str(home), *words]) == 1
    assert message in capsys.readouterr().err
    assert not home.exists()
