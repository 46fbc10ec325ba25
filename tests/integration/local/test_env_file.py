"""The environment file: read back as written, by us and by a shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.env_file import read_env, write_env

VARIABLES = {"A": 'x\'y "z" $HOME `id`', "B_2": '{"a": "b c"}', "EMPTY": "", "LINES": "one\ntwo"}


def test_round_trip(tmp_path: Path) -> None:
    write_env(tmp_path / "env", VARIABLES)
    assert read_env(tmp_path / "env") == VARIABLES
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o600


def test_a_shell_reads_the_same(tmp_path: Path) -> None:
    write_env(tmp_path / "env", VARIABLES)
    for name, value in VARIABLES.items():
        script = f'. {tmp_path / "env"}; printf %s "${name}"'
        answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        assert answer.stdout == value


def test_no_file_is_empty_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert read_env(tmp_path / "env") == {}
    for damaged in ("A='x", "no name=1 word"):
        (tmp_path / "env").write_text(damaged)
        with pytest.raises(StackError, match="is damaged"):
            read_env(tmp_path / "env")
