"""The command line itself: commands found by being there, exit codes, errors as text or JSON."""

from __future__ import annotations

import argparse
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_aiflow.cli import commands
from airflow_aiflow.cli.__main__ import build_parser, main
from airflow_aiflow.cli.output import table
from airflow_aiflow.exceptions import StackError

NAMES = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__))


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"aiflow {name}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["status", "--no-such-option"], ["up", "--mail-port", "x"]])
def test_a_wrong_command_line_exits_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: aiflow" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up", "--mail-port", "99999"], "'99999' is no port: 1 to 65535"),
        (["up", "--mail-port", "0"], "'0' is no port: 1 to 65535"),
        (["demo", "--limit", "x"], "'x' is no number from 1"),
        (["demo", "--limit", "0"], "'0' is no number from 1"),
    ],
)
def test_a_wrong_number_is_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["status", "down", "demo"])
def test_a_state_that_cannot_be_read_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stack.json").mkdir()
    assert main([name, "--home", str(tmp_path)]) == 1
    assert f"aiflow: {tmp_path / 'stack.json'} can't be read (Is a directory)" in capsys.readouterr().err


def failing(options: argparse.Namespace) -> int:
    raise StackError("port 1 is in use: free it")


def test_an_error_of_ours_is_a_message_and_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("airflow_aiflow.cli.commands.down.run", failing)
    assert main(["down"]) == 1
    assert capsys.readouterr().err == "aiflow: port 1 is in use: free it\n"
    assert main(["down", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"error": "StackError", "message": "port 1 is in use: free it"}


def test_building_the_command_line_imports_nothing_heavy() -> None:
    program = (
        "import sys; from airflow_aiflow.cli.__main__ import build_parser; build_parser(); "
        "print([name for name in ('airflow', 'psycopg', 'minio', 'requests', 'psutil', 'sqlalchemy') "
        "if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


def test_a_table_lines_up() -> None:
    assert table([("a", "bb"), ("ccc", "d")]) == "a    bb\nccc  d"
    assert table([]) == ""


def test_the_parser_names_the_program() -> None:
    assert build_parser().prog == "aiflow"
