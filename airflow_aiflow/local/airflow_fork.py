"""Run Airflow's four components out of one process: import once, migrate once, fork four times, keep them running.

Four separate `airflow` commands import the same modules four times, which takes half a minute on two cores. Here one
process imports them, migrates the metadata database, drops its connections and forks. It stays single-threaded up to
the forks and does nothing afterwards but wait: a component that dies is started again after its left-over workers were
killed, as a service manager does (an orphaned executor worker would hold on to its task beside the new scheduler).

The environment comes as one JSON line on standard input, so that heavy modules are imported while the database still
starts, and so that secrets never stand in a command line. Run as ``python -m airflow_aiflow.local.airflow_fork``, with
Airflow's home as the working directory.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from airflow_aiflow.local.private_file import write_json
from airflow_aiflow.local.process import ProcessIdentity, kill_group
from airflow_aiflow.local.trampoline import become_subreaper, die_with

#: Looks in a row that find no orphan, after which none comes any more; and at most so many seconds of looking.
QUIET_LOOKS, ORPHAN_SECONDS = 3, 10.0

#: Components and their commands. Task logs lie in one folder for all of them, so nobody needs the log servers, which
#: would listen on every address of the machine.
COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
#: What Airflow imports first and what reads no configuration of Airflow.
EARLY = ("sqlalchemy.orm", "sqlalchemy.ext.asyncio", "pydantic", "fastapi", "httpx", "alembic", "jinja2", "psycopg2")
#: What the first task of a start would otherwise import, each worker by itself (about 3 s).
PRELOAD = (
    "airflow.executors.local_executor",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.api_fastapi.core_api.app",
    "psycopg",
    "minio",
    # Seconds of imports that each attempt of a task with model calls would pay anew after a kill.
    "airflow.providers.common.ai.hooks.pydantic_ai",
    "pydantic_ai.models.openai",
)
#: Seconds for a component to end by itself; a scheduler waits for its running tasks, which we do not.
STOP_GRACE = 3.0
#: Seconds before a dead component is started again.
RESTART_DELAY = 1.0
#: A component that died so often within this many seconds of its start will not come up by trying.
GIVE_UP_AFTER, EARLY_DEATH = 5, 10.0
POLL = 0.1


class Stopped(BaseException):
    """The signal to stop."""


def _raise_stopped(number: int, frame: object) -> None:
    raise Stopped


class Component:
    """One component: its process and how it fared."""

    def __init__(self, name: str, run: Callable[[list[str]], None], logs: Path) -> None:
        self.name = name
        self.pid = 0
        self._run = run
        self._log = logs / f"{name}.log"
        self._started = 0.0
        self._early_deaths = 0

    def start(self) -> None:
        """Fork it into a session of its own."""
        self._started = time.monotonic()
        owner = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(owner)

    def _become(self, owner: int) -> None:
        code = 1
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            die_with(owner, signal.SIGKILL)
            output = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            self._run(COMPONENTS[self.name])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            # Nothing of the parent's may run at exit.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def died(self) -> bool:
        """Take note of a death.

        :return: whether starting it again makes sense.
        """
        early = time.monotonic() - self._started < EARLY_DEATH
        self._early_deaths = self._early_deaths + 1 if early else 0
        return self._early_deaths < GIVE_UP_AFTER


class Keeper:
    """Start the components, keep them running and end them.

    :param run: runs an Airflow command in this process.
    :param folder: where logs and the list of processes go.
    """

    def __init__(self, run: Callable[[list[str]], None], folder: Path) -> None:
        self._file = folder / "components.json"
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        self._components = [Component(name, run, logs) for name in COMPONENTS]

    def keep(self) -> None:
        """Run until told to stop.

        :raises Stopped: a signal came.
        :raises SystemExit: a component does not come up.
        """
        for component in self._components:
            component.start()
        self._write()
        while True:
            self._reap()
            time.sleep(POLL)

    def _reap(self) -> None:
        """Collect dead children; start dead components again."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for component in self._components:
                if component.pid == pid:
                    self._restart(component, status)

    def _restart(self, component: Component, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        print(f"{component.name} (pid {component.pid}) ended with {code}", flush=True)
        kill_group(component.pid)
        self._kill_orphans()
        if not component.died():
            raise SystemExit(f"{component.name} does not stay up: see its log")
        time.sleep(RESTART_DELAY)
        component.start()
        self._write()

    def _kill_orphans(self) -> None:
        """
        Kill what a dead component left: orphans of the tree become our children.

        A worker that dies with its group hands its task to us a moment later: so it is looked until nobody is left.
        """
        keep = {component.pid for component in self._components}
        quiet, deadline = 0, time.monotonic() + ORPHAN_SECONDS
        while quiet < QUIET_LOOKS and time.monotonic() < deadline:
            quiet += 1
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if child.pid in keep or child.status() == psutil.STATUS_ZOMBIE:
                        continue
                    quiet = 0
                    for process in [*child.children(recursive=True), child]:
                        process.kill()
            time.sleep(POLL)

    def end(self) -> None:
        """End every component and everything under them."""
        alive = [psutil.Process(component.pid) for component in self._components if psutil.pid_exists(component.pid)]
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(alive, timeout=STOP_GRACE)
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for component in self._components:
            if component.pid:
                kill_group(component.pid)
        self._file.unlink(missing_ok=True)

    def _write(self) -> None:
        listed = {}
        for component in self._components:
            identity = ProcessIdentity.of(component.pid)
            listed[component.name] = {"pid": component.pid, "started": identity.started if identity else 0.0}
        write_json(self._file, listed)


def _import_all(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _prepare_airflow() -> Callable[[list[str]], None]:
    """Import Airflow, bring the metadata database up to date, and forget its connections."""
    from airflow import settings
    from airflow.cli import cli_parser
    from airflow.utils import db

    db.initdb()
    _import_all(PRELOAD)
    settings.dispose_orm()
    parser = cli_parser.get_parser()

    def run(command: list[str]) -> None:
        settings.configure_orm()  # type: ignore[no-untyped-call]
        arguments = parser.parse_args(command)
        arguments.func(arguments)

    return run


def main() -> None:
    """Start everything and wait for SIGTERM."""
    parser = argparse.ArgumentParser(description="Airflow's components from one process")
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _raise_stopped)
    become_subreaper()
    keeper: Keeper | None = None
    try:
        _import_all(EARLY)
        given = sys.stdin.readline()
        if not given:
            return
        os.environ.update(json.loads(given))
        keeper = Keeper(_prepare_airflow(), folder)
        gc.collect()
        gc.freeze()
        keeper.keep()
    except Stopped:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if keeper is not None:
            keeper.end()


if __name__ == "__main__":
    main()
