"""`aiflow up`: start the embedded stack, in the foreground or detached."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_aiflow.cli.home_option import command_line, home_option
from airflow_aiflow.cli.output import FINDING, OK, json_option, note, show, table

if TYPE_CHECKING:
    from airflow_aiflow.local.stack import Stack, StackPlan

PARTS = ("airflow", "postgres", "objectstore", "model", "mail", "records")
#: Seconds between two looks at the parts.
WATCH = 0.5
LOG = "stack.log"
LAST_PORT = 65535
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asked the stack to end."""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "up", parents=[home_option(), json_option()], help="start PostgreSQL, S3, Airflow and the stand-ins"
    )
    parser.add_argument("--dags", type=Path, metavar="DIR", help="folder of DAG files (default: dags, if it exists)")
    parser.add_argument("--detach", action="store_true", help="return when all is healthy; `aiflow down` ends it")
    parser.add_argument("--no-airflow", action="store_true", help="start everything but Airflow")
    parser.add_argument("--no-recovery", action="store_true", help="do not run the recovery DAG beside your own")
    for part in PARTS:
        parser.add_argument(f"--{part}-port", type=_port, metavar="N", help=f"port of {part} (default: a free one)")
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to {LAST_PORT}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Start the stack; in the foreground, keep it until a signal comes."""
    return _detach(options) if options.detach else _stay(options)


def _plan(options: argparse.Namespace) -> StackPlan:
    from airflow_aiflow.exceptions import StackError
    from airflow_aiflow.local.stack import StackPlan

    dags = options.dags or (Path("dags") if Path("dags").is_dir() else options.home / "dags")
    if options.dags and not dags.is_dir():
        raise StackError(f"--dags {dags}: there is no such folder")
    ports = {part: getattr(options, f"{part}_port") for part in PARTS}
    return StackPlan(
        home=options.home,
        dags_folder=dags,
        ports={part: port for part, port in ports.items() if port is not None},
        with_airflow=not options.no_airflow,
        recovery=not options.no_recovery,
    )


def _stay(options: argparse.Namespace) -> int:
    from airflow_aiflow.local.stack import Stack
    from airflow_aiflow.local.stack_status import refuse_running

    def stop(number: int, frame: object) -> None:
        raise Stopped

    # Under nohup a hang-up is ignored, and stays so.
    ends = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in ends:
        signal.signal(number, stop)
    refuse_running(options.home)
    stack = Stack(_plan(options))
    try:
        stack.start(lambda name, seconds: note(f"  {name:<12} ready after {seconds:4.1f} s"))
        show(options, _facts(stack), _text(stack.home, stack.addresses()))
        _watch(stack)
    except Stopped:
        note("stopping")
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_IGN)
        stack.stop()
    return OK


def _watch(stack: Stack) -> None:
    while True:
        time.sleep(WATCH)
        for name in stack.mend():
            note(f"{name} had ended and was started again")


def _facts(stack: Stack) -> dict[str, Any]:
    return {
        "state": "running",
        "home": str(stack.home),
        "dags_folder": str(stack.airflow.dags_folder),
        "parts": {name: {"address": address} for name, address in stack.addresses().items()},
    }


def _text(home: Path, addresses: dict[str, str]) -> str:
    lines = [table(sorted(addresses.items())), ""]
    if "airflow" in addresses:
        lines.append(f"log in as admin; the password is in {home / 'airflow' / 'passwords.json'}")
    lines.append(f"environment for other programs: {home / 'env'}")
    return "\n".join(lines)


def _detach(options: argparse.Namespace) -> int:
    """Start the same command in a session of its own, and wait until it is healthy or gone."""
    from airflow_aiflow.local.process import spawn, tail
    from airflow_aiflow.local.stack import check_requirements, make_home
    from airflow_aiflow.local.stack_status import look, refuse_running

    check_requirements()
    _plan(options)
    make_home(options.home)
    refuse_running(options.home)
    log = options.home / LOG
    command = [sys.executable, "-P", "-m", "airflow_aiflow.cli", "up", "--home", str(options.home.absolute())]
    if options.dags:
        command += ["--dags", str(options.dags)]
    if options.no_airflow:
        command.append("--no-airflow")
    if options.no_recovery:
        command.append("--no-recovery")
    for part in PARTS:
        if (port := getattr(options, f"{part}_port")) is not None:
            command += [f"--{part}-port", str(port)]
    log.write_bytes(b"")
    child = spawn(command, log=log, owned=False)
    while child.poll() is None:
        status = look(options.home)
        if status.state == "running" and status.pid == child.pid:
            addresses = {part.name: part.address for part in status.parts}
            down = command_line("down", options.home)
            text = f"{_text(options.home.absolute(), addresses)}\nrunning (pid {status.pid}); `{down}` ends it"
            show(options, status.as_json(), text)
            return OK
        time.sleep(WATCH)
    note(f"the stack did not start; the end of {log}:\n{tail(log)}")
    return FINDING
