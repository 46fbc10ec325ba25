"""
Make the project's virtual environment, or find that it is up to date.

``make`` calls this before every command, so that a clean clone needs nothing but Python and make. Standard library
only: it runs before anything is installed. The stamp inside ``.venv`` names everything that the environment was built
from; it is written last, so that an interrupted run leaves an environment that the next run completes. A lock lets two
``make`` run side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "aiflow-stamp.json"
LOCK = ROOT / ".venv.lock"
CONSTRAINTS = ROOT / "constraints.txt"
SOURCES = (ROOT / "pyproject.toml", CONSTRAINTS)


class Stamp(NamedTuple):
    """What an environment was built from."""

    key: str = ""
    extras: tuple[str, ...] = ()
    path: str = ""
    python: str = ""

    def is_from_here(self) -> bool:
        """Say whether it was built at this path, by this Python: the scripts of an environment hold absolute paths."""
        return PYTHON.exists() and self.path == str(VENV) and self.python == version_label()


def main(argv: Sequence[str] | None = None) -> int:
    """
    Bring ``.venv`` to what the sources ask for.

    :param argv: names of extras; the environment keeps those that it already has.
    :return: exit status, 0 when the environment is usable.
    """
    parser = argparse.ArgumentParser(prog="tools/environment.py", description="Make or complete .venv.")
    parser.add_argument("extras", nargs="+", metavar="EXTRA", help="an extra of pyproject.toml, such as dev")
    wanted = set(parser.parse_args(argv).extras)
    if is_current(wanted):
        return 0
    with locked():
        if is_current(wanted):
            return 0
        return build(wanted)


def is_current(wanted: set[str]) -> bool:
    """Say whether the stamp matches the sources, this place, this Python and the wanted extras."""
    stamp = read_stamp()
    return stamp.key == source_key() and wanted <= set(stamp.extras) and stamp.is_from_here()


def build(wanted: set[str]) -> int:
    """Create the environment where needed and install the project with its extras into it."""
    stamp = read_stamp()
    STAMP.unlink(missing_ok=True)
    if stamp.key and not stamp.is_from_here():
        say(f"Making {VENV.name} anew (it was made elsewhere or by another Python)")
        shutil.rmtree(VENV, ignore_errors=True)
    extras = sorted(wanted | (set(stamp.extras) if VENV.exists() else set()))
    if not works(PYTHON):
        say(f"Making {VENV.name} with Python {version_label()}")
        base = getattr(sys, "_base_executable", "") or sys.executable
        if subprocess.run([base, "-m", "venv", "--clear", str(VENV)]).returncode != 0:
            return fail(f"{base} -m venv did not work. On Debian and Ubuntu: apt install python3-venv")
    say(f"Installing the project with [{','.join(extras)}]")
    if not (install_by_uv(extras) or install_by_pip(extras)):
        return fail("The installation failed; the lines above say why. It needs a package index (PyPI or a mirror).")
    stamp = Stamp(source_key(), tuple(extras), str(VENV), version_label())
    STAMP.write_text(json.dumps(stamp._asdict()) + "\n")
    return 0


def install_by_uv(extras: Sequence[str]) -> bool:
    """Install by uv, which takes seconds where pip takes a minute; uv itself comes from the package index."""
    if not run([str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]):
        say("uv cannot be had here: going on with pip, which takes longer")
        return False
    command = [str(PYTHON), "-m", "uv", "pip", "install", "--quiet", "--python", str(PYTHON), "--compile-bytecode"]
    command += [] if home_is_writable() else ["--no-cache"]
    if not run([*command, "-c", str(CONSTRAINTS), "-e", requirement(extras)]):
        say("uv did not work here: going on with pip, which takes longer")
        return False
    return True


def install_by_pip(extras: Sequence[str]) -> bool:
    """Install by pip alone."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--compile"]
    return run([*command, "-c", str(CONSTRAINTS), "-e", requirement(extras)])


def requirement(extras: Sequence[str]) -> str:
    """Return the editable requirement of this checkout with its extras."""
    return f"{ROOT}[{','.join(extras)}]"


def run(command: Sequence[str]) -> bool:
    """Run a command without input and say whether it succeeded."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, cwd=ROOT).returncode == 0


def works(python: Path) -> bool:
    """Say whether an environment is whole enough to install into: it starts, has pip and is of our Python version."""
    if not python.exists():
        return False
    code = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return found.returncode == 0 and found.stdout.strip() == version_label()


def home_is_writable() -> bool:
    """Say whether uv can keep its cache: a service user often has no home folder."""
    place = Path(os.environ.get("UV_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home())
    return os.access(place, os.W_OK)


def source_key() -> str:
    """Return the hash of everything that decides what gets installed."""
    digest = hashlib.sha256()
    for source in SOURCES:
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()


def version_label() -> str:
    """Return the running Python's version, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def read_stamp() -> Stamp:
    """Return the stamp, an empty one where there is none that can be read."""
    try:
        found = json.loads(STAMP.read_text())
        return Stamp(str(found["key"]), tuple(map(str, found["extras"])), str(found["path"]), str(found["python"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Stamp()


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the lock that keeps two builds apart; it is freed with the process, so a killed build blocks nothing."""
    with LOCK.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another make that is building .venv")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    """Print a line about progress to standard error: a command's own output stays alone on standard output."""
    print(line, file=sys.stderr, flush=True)


def fail(message: str) -> int:
    """Print why the environment cannot be made and return the exit status."""
    print(f"Cannot make .venv: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
