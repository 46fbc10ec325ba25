"""Who runs the demo at a terminal can open the timeline that it names; a program is not kept waiting."""

from __future__ import annotations

import argparse
import io
import sys

import pytest

from airflow_aiflow.cli import demo_stage
from airflow_aiflow.cli.commands import demo, demo_batch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "terminal", "ci", "keeps"),
    [
        ([], True, False, True),
        ([], False, False, False),
        ([], True, True, False),
        (["--json"], True, False, False),
        (["--no-keep"], True, False, False),
        (["--keep"], False, True, True),
    ],
)
def test_the_stack_is_kept_for_a_person(
    monkeypatch: pytest.MonkeyPatch, words: list[str], terminal: bool, ci: bool, keeps: bool
) -> None:
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, Terminal() if terminal else io.StringIO())
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", "true")
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for command in (demo, demo_batch):
        command.add_parser(commands)
    for name in ("demo", "demo-batch"):
        assert demo_stage.keeps(parser.parse_args([name, *words])) is keeps
