"""The README and docs/ say what the code does: examples run; options, errors, commands and links exist."""

from __future__ import annotations

import ast
import importlib
import inspect
import logging
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_aiflow import exceptions
from airflow_aiflow.cli.__main__ import build_parser
from airflow_aiflow.get_provider_info import get_provider_info
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask, ScriptedModels
from tests.pages import DOCS, README, Block, all_blocks, pages
from tests.unit.source_tree import ROOT

PARSED = all_blocks(kind="dag")
RUN = all_blocks(kind="run")
SIGNATURES = all_blocks(kind="signature")

#: Lines that may say "exactly once": the table's rows, which name the target that takes part, and what explains them.
EXACTLY_ONCE = re.compile(r'^\| effect (in|on) |^"Exactly once" stands only where', re.IGNORECASE)


def labels(blocks: list[Block]) -> list[Any]:
    return [pytest.param(block, id=block.label) for block in blocks]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_there_is_something_to_test() -> None:
    assert len(PARSED) > 10
    assert len(RUN) > 8
    assert len(SIGNATURES) > 8


@pytest.mark.parametrize("block", labels(all_blocks()))
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.label, "exec", dont_inherit=True)


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """Give a module to run a block in: Airflow and type hints look functions up by their module's name."""
    made = ModuleType("block_of_a_page")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


@pytest.mark.parametrize("block", labels(RUN))
def test_an_example_runs(block: Block, module: ModuleType) -> None:
    exec(compile(block.text, block.label, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    for name, value in list(vars(module).items()):
        if name.startswith("test_"):
            value()


@pytest.mark.parametrize("block", labels(PARSED))
def test_a_dag_is_parsed_by_airflow(block: Block, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    file = tmp_path / "block.py"
    file.write_text(block.text)
    with caplog.at_level(logging.ERROR):
        bag = DagBag(dag_folder=str(file))
    assert bag.import_errors == {}
    assert bag.captured_warnings == {}
    [dag] = bag.dags.values()
    DagSerialization.to_dict(dag)


@pytest.mark.parametrize("block", labels(SIGNATURES))
def test_a_signature_is_the_codes(block: Block) -> None:
    module_name, _, path = block.mark.removeprefix("signature: ").partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    assert shown(block.text) == expected(inspect.signature(found))


def shown(text: str) -> list[str]:
    """Read ``flow.step(name, *args, timeout=None)`` as a list of parameters."""
    [call] = ast.parse(text).body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    given = [ast.unparse(argument) for argument in call.value.args]
    for keyword in call.value.keywords:
        value = ast.unparse(keyword.value)
        given.append(f"**{value}" if keyword.arg is None else f"{keyword.arg}={value}")
    return given


def expected(signature: inspect.Signature) -> list[str]:
    made = []
    for name, parameter in signature.parameters.items():
        if name == "self":
            continue
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else star
        default = parameter.default
        value = default.__name__ if isinstance(default, type) else repr(default)
        made.append(f"{star}{name}" if default is parameter.empty else f"{name}={value}")
    return made


# --- what exists ------------------------------------------------------------------------------------------------------


def options() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = get_provider_info()["config"]["aiflow"]["options"]
    return found


def table_rows(path: Path) -> Iterator[list[str]]:
    """Yield the cells of every table row whose first cell is code."""
    for line in text_of(path).splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def used_options() -> set[str]:
    """Return the options that ``config.py`` reads: constants given to its readers."""
    tree = ast.parse(text_of(ROOT / "airflow_aiflow" / "config.py"))
    constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return options().keys() & constants


def test_the_configuration_page_has_every_option_with_its_default() -> None:
    rows = list(table_rows(DOCS / "reference" / "configuration.md"))
    found = {row[0].strip("`"): row[1].strip("`") for row in rows}
    assert found == {name: option["default"] or "(empty)" for name, option in options().items()}
    unused = {row[0].strip("`") for row in rows if "not used yet" in row[2].lower()}
    assert unused == options().keys() - used_options()


def test_options_that_pages_name_exist() -> None:
    for path in pages():
        text = text_of(path)
        named = {name.lower() for name in re.findall(r"AIRFLOW__AIFLOW__(\w+)", text)}
        named |= set(re.findall(r"`\[aiflow\] (\w+)`", text))
        assert named <= options().keys(), path


def test_the_error_page_has_every_error() -> None:
    rows = {row[0].strip("`"): row[2] for row in table_rows(DOCS / "reference" / "errors.md")}
    errors = {
        name: value
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, exceptions.AiflowError)
    }
    assert rows.keys() == errors.keys()
    for name, error in errors.items():
        assert (rows[name] == "yes") == error.retryable, name


def commands() -> Iterator[Any]:
    for block in all_blocks("bash") + all_blocks(""):
        for number, line in enumerate(block.text.splitlines()):
            command = line.partition("  #")[0].partition("    ")[0].strip()
            if match := re.match(r"(?:\.venv/bin/)?aiflow (.*)", command):
                yield pytest.param(match[1], id=f"{block.label}+{number}")


@pytest.mark.parametrize("words", list(commands()))
def test_a_command_exists(words: str) -> None:
    build_parser().parse_args(shlex.split(words))


# --- links and words --------------------------------------------------------------------------------------------------


def navigation(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for value in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from navigation(value)


def test_every_page_is_in_the_navigation() -> None:
    nav = tomllib.loads(text_of(ROOT / "zensical.toml"))["project"]["nav"]
    named = list(navigation(nav))
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in pages() if path != README)


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the builder make them."""
    prose = re.sub(r"^ *```.*?^ *```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [README, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_links_that_the_builder_does_not_see_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", text_of(path)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_images_exist_and_nothing_is_fetched_from_elsewhere() -> None:
    for path in pages():
        text = text_of(path)
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text) + re.findall(r"\bsrc=\"([^\"]+)\"", text):
            assert "://" not in target, (path, target)
            assert (path.parent / target).exists(), (path, target)
    for sheet in DOCS.rglob("*.css"):
        assert "url(" not in text_of(sheet)
        assert "@import" not in text_of(sheet)


def test_exactly_once_is_said_only_where_the_target_takes_part() -> None:
    for path in pages():
        for line in text_of(path).splitlines():
            assert "exactly once" not in line.lower() or EXACTLY_ONCE.match(line), f"{path}: {line}"


#: Word -> the glossary's.
OTHER_WORDS = {
    r"\bcheckpoint": "recorded step",
    r"\bmemoi[sz]": "record",
    r"\bworkflow": "DAG, run or task",
    r"\block owner\b": "owner",
    r"\bside[- ]effects?\b": "effect",
    r"\bcaches?d?\b": "record, replay",
}


def test_pages_use_the_glossarys_words() -> None:
    for path in pages():
        if path.name == "glossary.md":
            continue
        # What stands between backticks is somebody's code: a tag, an option, a column.
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", text_of(path), flags=re.DOTALL)
        for pattern, word in OTHER_WORDS.items():
            found = re.search(pattern, prose, re.IGNORECASE)
            assert found is None, f"{path.relative_to(ROOT)}: {found[0]!r}: say {word}"


# --- what the task log says -------------------------------------------------------------------------------------------


class PricedModels(ScriptedModels):
    """Answer with a price, as a model in the list does."""

    def call(self, request: LlmRequest) -> LlmAnswer:
        answer = super().call(request)
        return replace(answer, usage=replace(answer.usage, cost=Decimal("0.004")))


def mail(to: str) -> str:
    return to


def review(flow: Flow) -> None:
    flow.step("split", len, "abc")
    flow.llm("page", "first page")
    flow.llm("page", "second page" if flow.attempt == 1 else "second page, edited")
    if flow.attempt == 1:
        flow.effect("mail", mail, "legal@example.com", key="contract/a.pdf")


def shape(line: str) -> str:
    """Return a line with its figures, their plurals and widths taken out."""
    line = re.sub(r"\b(steps?|model calls?|effects?)\b", lambda found: found[0].rstrip("s"), line)
    return re.sub(r" +", " ", re.sub(r"\d+(?:[.,:]\d+)*", "9", line)).replace("[ 9", "[9")


def test_the_task_log_is_as_the_page_shows_it() -> None:
    first, resume = [block.text.splitlines() for block in all_blocks("text") if block.path.name == "task-log.md"]
    task = DurableTask(models=PricedModels())
    task.run(review)
    assert [shape(line) for line in task.host.lines] == [shape(line) for line in first]
    task.host.lines.clear()
    task.run(review)
    assert {shape(line) for line in resume if line != "..."} <= {shape(line) for line in task.host.lines}
