"""Read the project's own source as syntax trees, for the tests that hold its structure."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "airflow_aiflow"

#: What a walk leaves out where there is no git to ask: what make and the tools produce.
NOT_SOURCE = {".git", ".venv", ".aiflow", "__pycache__", "site", "build", "dist", "node_modules"}


@dataclass(frozen=True)
class Import:
    """One imported name, and where in its module it stands."""

    target: str
    line: int
    at_import_time: bool


@dataclass(frozen=True)
class Module:
    """One Python file."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def label(self) -> str:
        """The path as a reader of a failure wants it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def part(self) -> str:
        """The sub-package or module right under the package: ``storage`` for ``airflow_aiflow.storage.s3``."""
        return [*self.name.split("."), "__init__"][1]


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files that a commit of everything would hold, without those that are deleted in the tree."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = {ROOT / name for name in listed.split("\0") if name}
    else:
        found = {path for path in ROOT.rglob("*") if not NOT_SOURCE & set(path.relative_to(ROOT).parts)}
    return tuple(sorted(path for path in found if path.is_file()))


@functools.cache
def modules_under(folder: str) -> tuple[Module, ...]:
    """Return every Python module of a folder of the repository."""
    return tuple(
        read_module(path)
        for path in tracked_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] == folder
    )


def read_module(path: Path) -> Module:
    """Parse one file."""
    text = path.read_text(encoding="utf-8")
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return Module(".".join(parts), path, ast.parse(text, str(path)), len(text.splitlines()))


def imports(tree: ast.Module) -> Iterator[Import]:
    """Yield every import, those for the type checker alone left out; ``from a import b`` counts as ``a.b``."""
    yield from _imports(tree.body, at_import_time=True)


def _imports(body: list[ast.stmt], *, at_import_time: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_import_time) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            yield from (Import(f"{source}.{alias.name}", node.lineno, at_import_time) for alias in node.names)
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            yield from _imports(node.orelse, at_import_time=at_import_time)
        else:
            inner = at_import_time and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for block in blocks(node):
                yield from _imports(block, at_import_time=inner)


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the statement lists inside a compound statement."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block
    for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield branch.body


def is_type_checking(test: ast.expr) -> bool:
    """Say whether an ``if`` is the type checker's."""
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` for a chain of names, empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""
