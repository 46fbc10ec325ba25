"""Prepare a child process, then become the program that was asked for.

Run as a plain file (``python -I -S trampoline.py``): it imports the standard library only, so it costs milliseconds.
It exists because what it does must happen between fork and exec, and code between fork and exec of a threaded
Python process (a ``preexec_fn``) can deadlock. Order matters: a change of user clears the parent-death signal, so
that signal is set last, and the parent is compared afterwards, so that an owner that died in between is noticed.

Not covered: outside Linux there is no parent-death signal; a child then outlives an owner killed by SIGKILL.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWUSER = 0x10000000
#: Any id that is not 0: PostgreSQL refuses to run as root, and inside the namespace this is who it is.
NAMESPACE_ID = 1000


def _libc_call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def enter_user_namespace() -> None:
    """Map the present user to an ordinary id in a new user namespace; files stay the present user's."""
    uid, gid = os.geteuid(), os.getegid()
    _libc_call("unshare", CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NAMESPACE_ID} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{NAMESPACE_ID} {gid} 1")


def become_user(uid: int, gid: int) -> None:
    """Give up root for good."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def die_with(owner: int, signal_number: int) -> None:
    """Ask the kernel to signal this process when its parent ends.

    :param owner: pid of the process that must still be the parent.
    :param signal_number: the signal to get.
    :raises SystemExit: the owner is gone already.
    """
    if sys.platform == "linux":
        _libc_call("prctl", PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != owner:
        raise SystemExit(f"owner {owner} is gone")


def become_subreaper() -> None:
    """Have orphans among the descendants become children of this process, so that none is lost sight of."""
    if sys.platform == "linux":
        _libc_call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Change the user, bind this process to its owner, and execute the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--owner", type=int, default=0)
    parser.add_argument("--death-signal", type=int, default=9)
    parser.add_argument("--user-namespace", action="store_true")
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    program: list[str] = options.program[1:]
    if options.user_namespace:
        enter_user_namespace()
    elif options.uid is not None:
        become_user(options.uid, options.gid)
    if options.owner:
        die_with(options.owner, options.death_signal)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
