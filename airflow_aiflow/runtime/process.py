"""
Which process this is, whether another one is dead, and how this one ends with its supervisor.

Death is *verified* only on the machine and in the pid namespace where the process ran: there, an absent (pid, start
time) is proof. Anywhere else nothing is known, and the lease decides.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from pathlib import Path

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.runtime.living import look

#: ``prctl`` option: the signal that the kernel sends when the parent dies.
PR_SET_PDEATHSIG = 1


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _pid_namespace() -> int:
    with contextlib.suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def start_time(pid: int) -> int | None:
    """
    Read when a process started.

    :param pid: the process.
    :return: clock ticks since boot; ``None`` where it is gone, or dead and not yet reaped.
    """
    seen = look(pid)
    return None if seen is None else seen.start


def this_owner(ti_id: str) -> Owner:
    """
    Describe this process as an owner.

    :param ti_id: the task instance that it works for.
    """
    pid = os.getpid()
    return Owner(
        hostname=socket.gethostname(),
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        pid=pid,
        start=start_time(pid) or 0,
        ti_id=ti_id,
    )


def is_dead(owner: Owner) -> bool | None:
    """
    Verify an owner's death.

    :param owner: who held a lease.
    :return: ``True`` dead, ``False`` there, ``None`` where it can't be verified from here.
    """
    here = owner.boot_id and owner.boot_id == _boot_id() and owner.pid_namespace == _pid_namespace()
    if not here or not owner.pid_namespace:
        return None
    return start_time(owner.pid) != owner.start


def kill(owner: Owner) -> None:
    """
    End a process that outlived its lease, also a stopped one. Never this one.

    :param owner: verified to be here and there (``is_dead`` gave ``False``).
    """
    if owner.pid == os.getpid() or is_dead(owner) is not False:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(owner.pid, signal.SIGKILL)


def die_with_parent() -> bool:
    """
    Ask the kernel to end this process when its parent dies: else an orphan goes on beside the next try.

    :return: whether the parent still lives and the kernel took the wish (Linux).
    """
    parent = os.getppid()
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        taken = libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False
    # The parent may have died between the two calls; then no signal will ever come.
    return taken and os.getppid() == parent
