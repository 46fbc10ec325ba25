"""The file that tells other programs how to reach the stack: lines ``NAME=value``, quoted for a shell, mode 0600.

``set -a; . .aiflow/env; set +a`` gives a shell in which `airflow` and `aiflow` commands meet the running stack.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.private_file import write_private


def write_env(path: Path, variables: Mapping[str, str]) -> None:
    """Replace the file.

    :param path: the file.
    :param variables: value by name.
    """
    write_private(path, "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())))


def read_env(path: Path) -> dict[str, str]:
    """Read the file.

    :return: value by name; empty where there is no file.
    :raises StackError: it can't be read, or a line is damaged.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StackError(
            f"{path} can't be read ({error.strerror}): give another --home, or the right to read it"
        ) from error
    variables = {}
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise StackError(f"{path} is damaged: {error}") from error
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name.isidentifier():
            raise StackError(f"{path} is damaged: {name[:40]!r} is no NAME=value")
        variables[name] = value
    return variables
