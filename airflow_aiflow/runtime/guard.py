"""
Start and end the guard of an attempt: see ``guard_process.py`` for what it does.

It is a child of the task process in a session of its own, so that signals for the task's process group do not meet it.
The ledger's address goes to it over a socket, never by its arguments or its environment, which others can read.

Not covered: code of the author's that waits for *any* child (``os.wait``) sees the guard's end, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.ports import Host
from airflow_aiflow.runtime.left_over import MARKER
from airflow_aiflow.runtime.living import look
from airflow_aiflow.runtime.vitals import Vitals
from airflow_aiflow.storage.statements import statement

#: Needs nothing but the standard library and this package's folder: no site, no user's environment variables.
PROGRAM = "import sys; sys.path.append(sys.argv[1]); from airflow_aiflow.runtime.guard_process import main; main()"

#: Seconds that the guard gets to see that the attempt is over; it takes milliseconds.
CLOSE_SECONDS = 2.0

#: What a guard needs to keep to itself: connections with passwords may stand there.
HIDDEN = "AIRFLOW"

#: From the end of the range that nobody gives a meaning to; by default it ends a process.
DUMP_SIGNAL = getattr(signal, "SIGRTMIN", 34) + 11


@dataclass(frozen=True, slots=True)
class GuardPlan:
    """
    Say how attempts are guarded; every duration in seconds.

    :param conninfo: the ledger's address, the password in it.
    :param hang: over its own deadline after which a call is ended from outside: its own process, which is first to try,
        needs ten of them.
    :param record: that a unit in hand gets, after its own timeout, to be recorded.
    :param settle: after a death at which the lease lapses: a living supervisor has told Airflow by then.
    :param verdict: that a superseded, frozen process stays for its supervisor to hear of it: a report of its end could
        reach the attempt that has taken over.
    """

    conninfo: str = field(repr=False)
    hang: float = 30.0
    record: float = 10.0
    settle: float = 3.0
    verdict: float = 60.0


class Guard:
    """
    Be the guard, as its task process sees it.

    :param plan: how.
    :param vitals: shared.
    :param host: for a word in the log.
    """

    def __init__(self, plan: GuardPlan, vitals: Vitals, host: Host) -> None:
        self._plan = plan
        self._vitals = vitals
        self._host = host
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._ours: socket.socket | None = None
        self._dumps = False

    def start(self, lease: Lease, rules: LeaseRules, patience: float) -> None:
        """
        Start it, in some milliseconds. Without one the attempt goes on all the same.

        :param lease: to be kept.
        :param rules: of the lease.
        :param patience: seconds that a superseded unit in hand without a timeout of its own gets.
        """
        token = secrets.token_hex(16)
        try:
            plan = self._written(token, lease, rules, patience)
            self._ours, theirs = socket.socketpair()
            with theirs:
                self._process = self._spawn(theirs)
            self._ours.sendall(json.dumps(plan).encode() + b"\n")
        except (OSError, ValueError) as trouble:
            self._host.log(f"aiflow: this attempt has no guard: {trouble}", warning=True)
            self.close()
            return
        finally:
            self._close_page()
        os.environ[MARKER] = token

    def _spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        assert self._vitals.descriptor is not None
        folder = Path(__file__).parents[2]  # where the package lies
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM, str(folder)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)},
            pass_fds=(self._vitals.descriptor,),
            start_new_session=True,
            cwd="/",
        )

    def _written(self, token: str, lease: Lease, rules: LeaseRules, patience: float) -> dict[str, object]:
        seen = look(self._pid)
        if seen is None:
            raise OSError("its own process can't be seen in /proc")
        self._dumps = _can_dump()
        return {
            "pid": self._pid,
            "start": seen.start,
            "parent": os.getppid(),
            "leads": os.getpgrp() == self._pid,
            "page": self._vitals.descriptor,
            "token": token,
            "dump": int(DUMP_SIGNAL) if self._dumps else None,
            "ttl": rules.ttl,
            "interval": rules.interval,
            "patience": patience,
            "hang": self._plan.hang,
            "record": self._plan.record,
            "settle": self._plan.settle,
            "verdict": self._plan.verdict,
            "execution_id": lease.execution_pk,
            "fence": lease.fence,
            "conninfo": self._plan.conninfo,
            "renew": statement("renew"),
            "lapse": statement("lapse"),
            "path": [folder for folder in sys.path if folder],
        }

    def close(self) -> None:
        """End it, with the attempt. A forked child of the task leaves it alone."""
        if os.getpid() != self._pid:
            return
        self._vitals.ended()
        os.environ.pop(MARKER, None)
        if self._ours is not None:
            self._ours.close()
        if self._dumps:
            self._dumps = False
            faulthandler.unregister(DUMP_SIGNAL)
        if self._process is not None:
            _reap(self._process)

    def _close_page(self) -> None:
        descriptor, self._vitals.descriptor = self._vitals.descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def can_guard() -> bool:
    """Say whether this system has what a guard needs: Linux, with shared memory by descriptor."""
    return hasattr(os, "memfd_create") and os.path.exists("/proc/self/stat")


def _can_dump() -> bool:
    """Have a signal write the stacks of all threads and end this process, also while the interpreter is held."""
    if signal.getsignal(DUMP_SIGNAL) is not signal.SIG_DFL:
        return False
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True, chain=True)
        return True
    return False


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
