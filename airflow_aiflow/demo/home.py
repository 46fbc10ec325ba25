"""
The folder of a demo: its own stack, made anew each time, so that every count begins at zero.

Only a folder that a demo made is emptied, and only after what a crashed demo left running in it has been ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import pid_file
from airflow_aiflow.local.stack_status import refuse_running

MARK = ".aiflow-demo"
DAG_FILE = "document_review.py"
#: Seconds that what a crashed demo left gets to end; its owner's death has told it already.
GRACE = 15.0


@contextlib.contextmanager
def claimed(home: Path) -> Iterator[None]:
    """
    Hold the folder, made where it is missing, against another demo; the kernel frees it when this process dies.

    The lock is on the folder itself, which stays: a file in it would go when the folder is emptied.

    :param home: the folder.
    :raises StackError: another demo has it, or it can't be made or opened.
    """
    refuse_running(home)
    try:
        home.mkdir(parents=True, mode=0o700, exist_ok=True)
        descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(home, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackError(f"another demo is starting in {home}: wait for its end, or give another --home") from error
        yield
    finally:
        os.close(descriptor)


def prepare_home(home: Path, *, retries: int | None = None, dag: str = DAG_FILE) -> Path:
    """
    Empty or make the folder, and put the DAG into it.

    :param home: the folder.
    :param retries: of the task in this copy of the DAG; ``None``: as they stand there.
    :param dag: name of the DAG's file.
    :return: the folder of DAG files.
    :raises StackError: a demo is running there, the folder is somebody else's, or it can't be made.
    """
    refuse_running(home)
    try:
        if home.exists() and any(home.iterdir()):
            if not (home / MARK).exists():
                raise StackError(f"{home} is not empty and was not made by a demo: give another --home")
            for left in sorted(home.glob("*/server.json")):
                pid_file.end_left(left, ask=signal.SIGTERM, grace=GRACE)
            _empty(home)
        home.mkdir(parents=True, mode=0o700, exist_ok=True)
        (home / MARK).write_text("`aiflow demo` and `aiflow demo-batch` empty this folder at their start.\n")
        dags = home / "dags"
        dags.mkdir()
        text = dag_file(dag).read_text(encoding="utf-8")
        (dags / dag).write_text(text if retries is None else _with_retries(text, retries), encoding="utf-8")
    except OSError as error:
        raise _unusable(home, error) from error
    return dags


def _with_retries(text: str, retries: int) -> str:
    changed, count = re.subn(r"\bretries=\d+", f"retries={retries}", text)
    if count != 1:
        raise StackError(f"{DAG_FILE} must say once how many retries there are, and does so {count} times")
    return changed


def _empty(home: Path) -> None:
    """Remove everything, the mark last: a folder that was half emptied is still one of ours."""
    for path in sorted(home.iterdir(), key=lambda path: path.name == MARK):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _unusable(home: Path, error: OSError) -> StackError:
    return StackError(f"{home} can't be used for the demo ({error.strerror}): give another --home")


def dag_file(name: str = DAG_FILE) -> Path:
    """
    Find a demo's DAG file: beside the package in a clone, inside it in an installed wheel.

    :param name: the file's.
    :raises StackError: it is not there.
    """
    here = Path(__file__).parent
    places = (here.parents[1] / "dags" / name, here / name)
    for place in places:
        if place.is_file():
            return place
    raise StackError(f"the demo's DAG file is missing: put {name} from the project's dags/ at {places[0]}")
