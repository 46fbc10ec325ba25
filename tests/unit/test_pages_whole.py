"""The reference pages are whole: each command, option, name and event of the code stands there, and no other."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import airflow_aiflow
from airflow_aiflow.cli.__main__ import build_parser
from airflow_aiflow.decorators.durable import DurableDecoratedOperator
from airflow_aiflow.decorators.effect_words import EffectWords
from airflow_aiflow.durable.event_cursor import DELTA, DONE
from airflow_aiflow.runtime.async_flow import AsyncFlow
from airflow_aiflow.runtime.flow import Flow
from tests.pages import DOCS, README, pages
from tests.unit.source_tree import ROOT

REFERENCE = DOCS / "reference"
CLI = (REFERENCE / "cli.md").read_text(encoding="utf-8")

#: Said of what is planned. A page tells what is so; what is missing stands as "Not covered", without a promise.
PROMISES = re.compile(
    r"not built yet|not used yet|not implemented|in this release|this release (?:lacks|does not)", re.I
)

#: Where an option's name ends.
ENDING = r"(?![\w-])"


def section(path: Path, title: str) -> str:
    """Give what stands under a heading, up to the next one of its kind."""
    return re.split(r"^## ", path.read_text(encoding="utf-8").split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def first_cells(text: str) -> set[str]:
    """Give the code in the first cells of a section's table rows."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def parsers(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str], bool]]:
    """Yield each command with its long options, and whether it does something by itself."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    options = {
        name
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--") and action.help != argparse.SUPPRESS
    }
    yield " ".join(words), options - {"--help", "--version"}, not below or not below[0].required
    for action in below:
        for word, one in action.choices.items():
            yield from parsers(one, (*words, word))


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_page_has_every_command() -> None:
    named = set(re.findall(r"\baiflow ([a-z][a-z-]*(?: (?:[a-z][a-z-]*|\|))*)", CLI))
    shown = set()
    for words in named:
        group, *rest = words.split(" ")
        shown |= {group, *(f"{group} {word}" for word in rest)}
    missing = {words for words, _, acts in parsers(build_parser()) if words and acts} - shown
    assert missing == set()


def test_the_page_has_every_option_and_no_other() -> None:
    known = {option for _, options, _ in parsers(build_parser()) for option in options}
    assert {option for option in known if not re.search(re.escape(option) + ENDING, CLI)} == set()
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", CLI)) - {"--NAME-port"} <= known


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_option_of_a_durable_task_has_a_row() -> None:
    parameters = inspect.signature(DurableDecoratedOperator.__init__).parameters
    airflows = {"self", "python_callable", "op_args", "op_kwargs", "show_return_value_in_logs", "kwargs"}
    assert first_cells(section(REFERENCE / "decorators.md", "@task.durable")) == parameters.keys() - airflows


def test_every_option_of_an_effect_has_a_row() -> None:
    rows = first_cells(section(REFERENCE / "flow.md", "effect").partition("`EffectContext`")[0])
    assert rows == {"key"} | EffectWords.__annotations__.keys()


@pytest.mark.parametrize("face", [Flow, AsyncFlow])
def test_every_call_of_a_flow_is_named(face: type) -> None:
    # `lease` is for what is built on a flow, not for authors.
    names = {name for base in face.__mro__[:-1] for name in vars(base) if not name.startswith("_")} - {"lease"}
    page = (REFERENCE / "flow.md").read_text(encoding="utf-8")
    assert {name for name in names if not re.search(rf"\b[Ff]low\.{name}\b", page)} == set()


@pytest.mark.parametrize("module", ["", ".operators", ".sensors", ".notifications", ".recovery", ".testing", ".client"])
def test_every_public_name_is_on_a_page(module: str) -> None:
    found = import_module(f"{airflow_aiflow.__name__}{module}")
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages())
    assert {name for name in found.__all__ if not re.search(rf"\b{name}\b", text)} == set()


def test_every_kind_of_event_has_a_row_and_no_other() -> None:
    rows = first_cells((REFERENCE / "events.md").read_text(encoding="utf-8"))
    constants = {node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert written_kinds() - rows == set()
    assert rows - constants == set()


def nodes() -> Iterator[ast.AST]:
    for path in (ROOT / "airflow_aiflow").rglob("*.py"):
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def written_kinds() -> set[str]:
    """Give the kinds that stand in the calls which write events, and those of an answer's pieces."""
    kinds = {DELTA, DONE, "progress"}
    for node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("note", "_event"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                kinds.add(first.value)
    return kinds


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_tells_what_is_so(path: Path) -> None:
    found = PROMISES.search(path.read_text(encoding="utf-8"))
    assert found is None, f"{found[0]!r}: say what is so, or what is not covered"


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_table_has_its_head(path: Path) -> None:
    """A row behind an empty line is no row: it comes out as a line of bars."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, rule, *rows = table.splitlines()
        assert re.fullmatch(r"\|(?:-+\|)+", rule), f"{head!r} has no line of dashes below it"
        columns = rule.count("|")
        for row in (head, *rows):
            assert len(re.findall(r"(?<!\\)\|", row)) == columns, row


def test_a_promise_would_be_found() -> None:
    assert PROMISES.search("`labels` is not built yet")
    assert PROMISES.search("In this release they are read by SQL") is not None


def test_the_readme_is_among_the_pages() -> None:
    assert README in pages()
