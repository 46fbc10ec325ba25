"""
The folder of a demo: its own stack, made anew each time, so that every count begins at zero.

Only a folder that a demo made is emptied, and only after what a crashed demo left running in it has been ended.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import pid_file
from airflow_aiflow.local.stack_status import owner

MARK = ".aiflow-demo"
DAG_FILE = "document_review.py"
#: Seconds that what a crashed demo left gets to end; its owner's death has told it already.
GRACE = 15.0


def prepare_home(home: Path) -> Path:
    """
    Empty or make the folder, and put the DAG into it.

    :param home: the folder.
    :return: the folder of DAG files.
    :raises StackError: a demo is running there, the folder is somebody else's, or it can't be made.
    """
    running = owner(home)
    if running is not None:
        raise StackError(
            f"a stack is running in {home} (process {running.pid}): end it with `aiflow down --home {home}`, or give "
            f"another --home"
        )
    try:
        if home.exists() and any(home.iterdir()):
            if not (home / MARK).exists():
                raise StackError(f"{home} is not empty and was not made by a demo: give another --home")
            for left in sorted(home.glob("*/server.json")):
                pid_file.end_left(left, ask=signal.SIGTERM, grace=GRACE)
            shutil.rmtree(home)
        home.mkdir(parents=True, mode=0o700, exist_ok=True)
        (home / MARK).write_text("`aiflow demo` empties this folder at its start.\n")
        dags = home / "dags"
        dags.mkdir()
        shutil.copyfile(dag_file(), dags / DAG_FILE)
    except OSError as error:
        raise StackError(f"{home} can't be used for the demo ({error.strerror}): give another --home") from error
    return dags


def dag_file() -> Path:
    """
    Find the demo's DAG file: beside the package in a clone, inside it in an installed wheel.

    :raises StackError: it is not there.
    """
    here = Path(__file__).parent
    places = (here.parents[1] / "dags" / DAG_FILE, here / DAG_FILE)
    for place in places:
        if place.is_file():
            return place
    raise StackError(f"the demo's DAG file is missing: put {DAG_FILE} from the project's dags/ at {places[0]}")
