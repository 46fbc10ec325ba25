"""
Hold the structure that the project promises: layers, sizes, names, and what may never stand in a file.

Each rule is a small function over one module, so that the tests at the end can show it the thing it must find.
"""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.source_tree import PACKAGE, ROOT, Import, Module, dotted, imports, modules_under, tracked_files
from tests.unit.sql_rule import built_statements

MODULES = modules_under(PACKAGE)
BY_NAME = {module.name: module for module in MODULES}
TESTS = modules_under("tests")

DOMAIN = {"durable", "exceptions"}
WORK = DOMAIN | {"storage", "llm", "runtime"}
TASKS = WORK | {"config", "hooks", "links", "xcom"}

#: What each part of the package may import from the rest of it, whenever the import runs. Imports go one way: dags ->
#: operators, sensors, decorators -> hooks, triggers, runtime -> storage -> durable -> exceptions; plugin -> api; cli ->
#: local, storage. A new part needs a line here, and with it a thought.
ALLOWED: dict[str, set[str]] = {
    # Lazily: no import of it runs before a name is asked for.
    "__init__": TASKS | {"decorators", "operators", "testing"},
    "exceptions": set(),
    "durable": {"exceptions"},
    "storage": DOMAIN,
    "llm": DOMAIN,
    "runtime": DOMAIN | {"storage", "llm"},
    "config": DOMAIN | {"get_provider_info"},
    "hooks": WORK | {"config"},
    "links": {"config", "exceptions", "ui"},  # of the pages their addresses alone
    "reconcile": DOMAIN | {"hooks", "storage"},
    "xcom": DOMAIN | {"hooks"},
    "recovery": TASKS,
    "triggers": TASKS | {"recovery"},
    "decorators": TASKS | {"triggers"},
    "operators": TASKS | {"triggers", "decorators", "recovery", "notifications"},
    "sensors": TASKS | {"triggers", "recovery"},
    "notifications": TASKS,
    "testing": WORK,
    "get_provider_info": set(),
    "api": WORK | {"config", "hooks", "policy", "ui", "xcom"},
    "policy": set(),  # every component of Airflow imports it
    "ui": set(),
    "plugin": DOMAIN | {"api", "config", "hooks", "links", "runtime", "ui", "xcom"},
    "local": DOMAIN | {"storage"},
    "demo": WORK | {"local", "ui"},  # tells the address of a page
    "client": set(),  # users' programs have it without anything else of ours
    # hooks: Airflow's REST API, without Airflow
    "cli": WORK | {"client", "config", "hooks", "local", "demo", "recovery"},
}

#: Against the direction, and only when a function runs: `Flow.from_context` is an author's door to what the hook puts
#: together, `recovery_dag` one to the operators that use the rest of its package.
ALLOWED_IN_FUNCTIONS = {("runtime", "hooks"), ("recovery", "operators"), ("recovery", "sensors")}

#: The only doors into Airflow outside `airflow.sdk`, and who may use them; `None` means everyone.
AIRFLOW_DOORS: dict[str, set[str] | None] = {
    "airflow.sdk": None,
    "airflow.providers": None,
    "airflow.triggers.base": None,
    "airflow.plugins_manager": None,
    "airflow.listeners.hookimpl": None,
    "airflow.configuration": {"config"},
    "airflow.api_fastapi": {"api"},
    # The API server has Airflow's own database, and makes runs by Airflow's own code.
    "airflow.models": {"api"},
    "airflow.serialization": {"api"},
    "airflow.utils": {"api"},
}
#: It runs Airflow itself.
RUNS_AIRFLOW = {"local"}

BANNED_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "handler", "handlers", "data"}
RUNS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "joblib"}
LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 50


# --- the rules ---


def inner_target(found: Import) -> str | None:
    """Return the module of ours that an import reaches, None for a foreign one."""
    if found.target.split(".")[0] != PACKAGE:
        return None
    if found.target in BY_NAME:
        return found.target
    return found.target.rpartition(".")[0] or PACKAGE


def wrong_directions(module: Module) -> Iterator[str]:
    """Yield each import that goes against the layers."""
    for found in imports(module.tree):
        target = inner_target(found)
        if target is None:
            continue
        part = [*target.split("."), "__init__"][1]
        if not found.at_import_time and (module.part, part) in ALLOWED_IN_FUNCTIONS:
            continue
        if part not in {module.part, *ALLOWED.get(module.part, set())}:
            yield f"{module.label}:{found.line}: {module.part} may not import {part} ({found.target})"


def foreign_to_domain(module: Module) -> Iterator[str]:
    """Yield each import of the domain that is neither the standard library nor ours."""
    for found in imports(module.tree):
        if found.target.split(".")[0] not in {*sys.stdlib_module_names, PACKAGE}:
            yield f"{module.label}:{found.line}: {found.target}"


def wrong_airflow(module: Module) -> Iterator[str]:
    """Yield each import of Airflow that does not come through a door."""
    for found in imports(module.tree):
        if found.target.split(".")[0] != "airflow" or module.part in RUNS_AIRFLOW:
            continue
        doors = [door for door in AIRFLOW_DOORS if f"{found.target}.".startswith(f"{door}.")]
        users = AIRFLOW_DOORS[doors[0]] if doors else set()
        if users is not None and module.part not in users:
            yield f"{module.label}:{found.line}: {found.target}"


def long_functions(module: Module) -> Iterator[str]:
    """Yield each function that cannot be read at one sitting."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > LINES_OF_A_FUNCTION:
                yield f"{module.label}:{node.lineno}: {node.name} has {size} lines"


def code_from_data(module: Module) -> Iterator[str]:
    """Yield each way by which stored data could become running code."""
    for found in imports(module.tree):
        if found.target.split(".")[0] in RUNS_CODE:
            yield f"{module.label}:{found.line}: imports {found.target}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and dotted(node.func) in {"eval", "exec", "builtins.eval", "builtins.exec"}:
            yield f"{module.label}:{node.lineno}: calls {dotted(node.func)}"


def private_places(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and match of each path of one machine and each address of a package index."""
    home = "|".join(["root", r"home/\w+", r"Users/\w+", "work", "farm"])
    index = "|".join(
        ["index" + "-url", "extra-" + "index", "find-" + "links", r"https?://[^\s/\"']+/(?:[\w/-]+/)?simple/"]
    )
    for number, line in enumerate(text.splitlines(), 1):
        for match in re.finditer(rf"(?:(?<![\w.$}}/-])/(?:{home})/\w+)|(?:{index})", line):
            yield number, match.group()


def sleeps(module: Module) -> Iterator[str]:
    """Yield each call that waits for time to pass instead of for a condition; a child program's text may hang."""
    for found in imports(module.tree):
        if found.target == "time.sleep":
            yield f"{module.label}:{found.line}: from time import sleep"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and dotted(node.func) == "time.sleep":
            yield f"{module.label}:{node.lineno}: time.sleep"


# --- what the project's files must hold to ---


def test_every_part_is_in_the_table() -> None:
    parts = {module.part for module in MODULES}
    assert parts - set(ALLOWED) == set(), "a new part of the package needs a line in ALLOWED"


def test_imports_go_one_way() -> None:
    assert [line for module in MODULES for line in wrong_directions(module)] == []


def test_the_table_itself_has_no_cycle() -> None:
    graph = {part: allowed - {part} for part, allowed in ALLOWED.items()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_the_domain_imports_the_standard_library_only() -> None:
    domain = [module for module in MODULES if module.part in DOMAIN]
    assert [line for module in domain for line in foreign_to_domain(module)] == []


def test_no_module_cycle_at_import_time() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        targets = {inner_target(found) for found in imports(module.tree) if found.at_import_time}
        graph[module.name] = {target for target in targets if target is not None} - {module.name}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_airflow_comes_through_its_doors() -> None:
    assert [line for module in MODULES for line in wrong_airflow(module)] == []


def test_ruff_bans_every_other_part_of_airflow() -> None:
    """The editor says it at once; a part that a later Airflow adds must be listed too."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    banned = {name.split(".")[1] for name in lint["flake8-tidy-imports"]["banned-api"] if name.startswith("airflow.")}
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    places = spec.submodule_search_locations or []
    found = {path.name for place in places for path in Path(place).iterdir() if (path / "__init__.py").exists()}
    found |= {path.stem for place in places for path in Path(place).glob("*.py")}
    allowed = {door.split(".")[1] for door, users in AIRFLOW_DOORS.items() if users is None}
    harmless = {"example_dags", "typing_compat", "ui"}
    assert {name for name in found if not name.startswith("_")} - banned - allowed - harmless == set()


def test_files_are_short() -> None:
    assert [f"{m.label} has {m.lines} lines" for m in MODULES if m.lines >= LINES_OF_A_FILE] == []


def test_functions_are_short() -> None:
    assert [line for module in MODULES for line in long_functions(module)] == []


def test_module_names_say_what_is_in_them() -> None:
    names = [(module.label, set(module.name.split("."))) for module in (*MODULES, *TESTS)]
    assert [label for label, parts in names if parts & BANNED_NAMES] == []


def test_no_data_becomes_code() -> None:
    assert [line for module in MODULES for line in code_from_data(module)] == []


def test_sql_is_never_built_from_strings() -> None:
    assert [f"{m.label}:{line}" for m in MODULES for line in built_statements(m.tree)] == []


def test_every_sql_file_is_used() -> None:
    statements = [
        path for path in tracked_files() if path.suffix == ".sql" and path.relative_to(ROOT).parts[0] == PACKAGE
    ]
    sources = "\n".join(module.path.read_text() for module in MODULES)
    unused = [path.name for path in statements if not re.search(rf"\b{re.escape(path.stem)}\b", sources)]
    assert unused == []


def test_tests_wait_on_conditions() -> None:
    assert [line for module in TESTS for line in sleeps(module)] == []


def test_every_folder_of_tests_is_run() -> None:
    """A folder that pytest is not told about would never fail."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    found = {"/".join(m.label.split("/")[:2]) for m in TESTS if m.path.name.startswith("test_")}
    assert found - set(options["testpaths"]) == set()


def test_no_place_of_one_machine_in_any_file() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{line}: {match}" for line, match in private_places(text)]
    assert found == []


# --- the rules find what they are for ---


def sample(text: str, name: str = f"{PACKAGE}.durable.sample") -> Module:
    """Return a module that is no file."""
    path = ROOT / Path(*name.split(".")).with_suffix(".py")
    return Module(name, path, ast.parse(text), len(text.splitlines()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("durable.x", "from airflow_aiflow.storage import postgres"),
        ("storage.x", "def f():\n    import airflow_aiflow.runtime.flow"),
        ("storage.x", "try:\n    from airflow_aiflow import hooks\nexcept ImportError:\n    pass"),
        ("exceptions", "from airflow_aiflow.durable.lease import Lease"),
        ("runtime.x", "from airflow_aiflow.hooks.aiflow import AiflowHook"),
    ],
)
def test_directions_rule_finds(name: str, text: str) -> None:
    assert len(list(wrong_directions(sample(text, f"{PACKAGE}.{name}")))) == 1


def test_directions_rule_leaves_types_alone() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from airflow_aiflow.hooks import x"
    assert list(wrong_directions(sample(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "import airflow.models",
        "from airflow import settings",
        "from airflow.listeners import listener",
        "from airflow.configuration import conf",
        "def f():\n    from airflow.utils.session import create_session",
        "from airflow.sdkx import y",
    ],
)
def test_airflow_rule_finds(text: str) -> None:
    assert len(list(wrong_airflow(sample(text)))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config", "from airflow.configuration import conf"),
        ("plugin", "from airflow.listeners import hookimpl"),
        ("durable.x", "from airflow.sdk import BaseHook"),
        ("triggers.x", "from airflow.triggers.base import BaseTrigger"),
        ("api.x", "from airflow.api_fastapi.core_api.security import GetUserDep"),
    ],
)
def test_airflow_rule_lets_through(name: str, text: str) -> None:
    assert list(wrong_airflow(sample(text, f"{PACKAGE}.{name}"))) == []


def test_domain_rule_finds() -> None:
    assert len(list(foreign_to_domain(sample("import json\nimport numpy\nfrom airflow_aiflow import exceptions")))) == 1


def test_length_rule_finds() -> None:
    inside = "\n".join("    x = 1" for _ in range(LINES_OF_A_FUNCTION))
    assert len(list(long_functions(sample(f"def f():\n{inside}")))) == 1
    assert list(long_functions(sample(f"def f():\n{inside[:-10]}"))) == []


@pytest.mark.parametrize("text", ["import pickle", "from marshal import loads", "def f(x):\n    return eval(x)"])
def test_code_rule_finds(text: str) -> None:
    assert len(list(code_from_data(sample(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        'cur.execute(f"SELECT {x}")',
        'cur.execute("SELECT %s" % x)',
        'cur.execute("SELECT {}".format(x))',
        'cur.execute("SELECT " + x)',
        'cur.execute(", ".join(x))',
        'def f(cur, x):\n    statement = f"SELECT {x}"\n    cur.execute(statement)',
        'def f(cur, x):\n    statement = "SELECT 1"\n    statement += x\n    cur.executemany(statement, [])',
        'cur.execute(SQL(f"SELECT {x}"))',
        'cur.execute(cast(LiteralString, f"SELECT {x}"))',
        'with cur.copy(f"COPY {x} TO STDOUT") as copy:\n    pass',
        'op.execute(sa.text(FILE.read_text().replace("{schema}", x)))',
    ],
)
def test_sql_rule_finds(text: str) -> None:
    assert list(built_statements(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        'cur.execute("SELECT %s", [x])',
        'cur.execute("SELECT 1 " "FROM t")',
        'cur.execute("SELECT 1 " + "FROM t")',
        "cur.execute(STATEMENTS.begin, {'x': x})",
        'cur.execute(SQL("CREATE ROLE {}").format(Identifier(x)))',
        'shutil.copy(f"{x}/a", y)',
        'response.text(f"{x}")',
    ],
)
def test_sql_rule_lets_through(text: str) -> None:
    assert list(built_statements(ast.parse(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "cd /" + "root/project",
        "open('/" + "home/ada/x')",
        "pip install --index" + "-url x",
        "https://mirror.test/simp" + "le/x",
    ],
)
def test_places_rule_finds(text: str) -> None:
    assert len(list(private_places(text))) == 1


def test_places_rule_lets_through() -> None:
    assert list(private_places("see docs/root/x, https://example.com/home/page and $HOME/work/x")) == []


def test_sleep_rule_finds() -> None:
    assert len(list(sleeps(sample("import time\ntime.sleep(1)\nfrom time import monotonic, sleep")))) == 2
