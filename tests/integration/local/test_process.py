"""Children: own session, end with their owner, and are never mistaken for a stranger with the same pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import pid_file
from airflow_aiflow.local.private_file import FolderLock, read_json, write_json
from airflow_aiflow.local.process import ProcessIdentity, end_stranger, spawn, stop, tail

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]


def wait_for_line(log: Path, line: str) -> None:
    with subprocess.Popen(["tail", "-n", "+1", "-F", str(log)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert any(each.strip() == line for each in reader.stdout)
        reader.kill()


def gone(process: psutil.Process) -> bool:
    psutil.wait_procs([process], timeout=10)
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_child_has_a_session_of_its_own_and_stops_when_asked(tmp_path: Path) -> None:
    child = spawn(SLEEP, log=tmp_path / "log")
    assert os.getsid(child.pid) == child.pid
    stop(child, ask=signal.SIGTERM, grace=10)
    assert child.returncode == -signal.SIGTERM


def test_a_deaf_child_is_killed(tmp_path: Path) -> None:
    child = spawn(DEAF, log=tmp_path / "log")
    wait_for_line(tmp_path / "log", "up")
    stop(child, ask=signal.SIGTERM, grace=0.1)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("owned", [True, False])
def test_an_owned_child_ends_with_its_killed_owner(tmp_path: Path, owned: bool) -> None:
    program = textwrap.dedent(
        f"""
        import os, signal, threading
        from pathlib import Path
        from airflow_aiflow.local.process import spawn
        def start():
            child = spawn({SLEEP!r}, log=Path({str(tmp_path / "log")!r}), owned={owned})
            print(child.pid, flush=True)
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        signal.pause()
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        wait_for_line(tmp_path / "log", "up")
        owner.kill()
    if owned:
        assert gone(child)
    else:
        assert child.is_running()
        identity = ProcessIdentity.of(child.pid)
        assert identity is not None
        end_stranger(identity, ask=signal.SIGTERM, grace=5)
        assert gone(child)


def test_a_stranger_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    child = spawn(SLEEP, log=tmp_path / "log")
    real = ProcessIdentity.of(child.pid)
    assert real is not None
    other = ProcessIdentity(child.pid, real.started - 100)
    assert real.alive()
    assert not other.alive()
    end_stranger(other, ask=signal.SIGKILL, grace=1)
    assert child.poll() is None
    write_json(tmp_path / "pid", {"pid": other.pid, "started": other.started})
    assert pid_file.running(tmp_path / "pid") is None
    pid_file.remember(tmp_path / "pid", child.pid, port=1)
    assert pid_file.running(tmp_path / "pid") == real
    stop(child, ask=signal.SIGKILL, grace=1)
    assert not real.alive()


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path: Path) -> None:
    program = (
        "import signal, sys; from pathlib import Path; from airflow_aiflow.local.private_file import FolderLock; "
        f"FolderLock(Path({str(tmp_path / 'lock')!r})).acquire(); print('held', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        # The object is gone at once, and with it nothing: the descriptor is the lock.
        assert holder.stdout.readline() == "held\n"
        lock = FolderLock(tmp_path / "lock")
        with pytest.raises(StackError, match=f"in use by process {holder.pid}"):
            lock.acquire()
        assert not lock.held
        holder.kill()
    lock.acquire()
    assert lock.held
    lock.release()


def test_a_damaged_state_file_names_itself(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(StackError, match=r"state\.json is damaged"):
        read_json(tmp_path / "state.json")
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(StackError, match="no JSON object"):
        read_json(tmp_path / "state.json")
    assert read_json(tmp_path / "none.json") is None


def test_the_end_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo \xff\nthree\n")
    assert tail(tmp_path / "log", 2) == "two \N{REPLACEMENT CHARACTER}\nthree"
    assert "can't be read" in tail(tmp_path / "none")
