"""Find SQL that is put together from strings instead of being passed with parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.source_tree import dotted

#: The calls of psycopg, SQLAlchemy and Alembic that take a statement first.
EXECUTES = {"execute", "executemany", "execute_values", "exec_driver_sql", "SQL", "text", "sa.text", "sqlalchemy.text"}


def built_statements(tree: ast.Module) -> Iterator[int]:
    """
    Yield the line of each call that takes a statement built from strings.

    Names are followed to their assignments in the same function or module. Not covered: a statement that is built in
    another function and handed over.

    :param tree: the module.
    """
    for scope in scopes(tree):
        known = assignments(scope)
        for node in own_nodes(scope):
            if isinstance(node, ast.Call) and node.args and takes_statement(node) and is_built(node.args[0], known):
                yield node.lineno


def takes_statement(call: ast.Call) -> bool:
    """Say whether a call takes SQL as its first argument."""
    name = dotted(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else name
    return name in EXECUTES or (method in EXECUTES and method != "text") or (method == "copy" and "cur" in name)


def is_built(node: ast.expr, known: dict[str, list[ast.expr]]) -> bool:
    """Say whether an expression puts a string together from parts that are no constants."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        return not is_constant(node)
    if isinstance(node, ast.Call):
        return is_format(node) or any(is_built(argument, known) for argument in node.args if wraps(node))
    if isinstance(node, ast.IfExp):
        return is_built(node.body, known) or is_built(node.orelse, known)
    if isinstance(node, ast.Name):
        return any(is_built(value, {}) for value in known.get(node.id, []))
    return False


def is_format(call: ast.Call) -> bool:
    """Say whether a call is ``str.format`` or ``str.join``; psycopg's composables quote what they take in."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr in {"format", "join", "format_map", "replace"}):
        return False
    receiver = call.func.value
    return not (isinstance(receiver, ast.Call) and dotted(receiver.func).split(".")[-1] == "SQL")


def wraps(call: ast.Call) -> bool:
    """Say whether a call gives back the string that it was given: a cast or a statement object."""
    return dotted(call.func).split(".")[-1] in {"cast", "str", "SQL", "text", "dedent"}


def is_constant(node: ast.expr) -> bool:
    """Say whether an expression is made of string constants alone."""
    if isinstance(node, ast.BinOp):
        return is_constant(node.left) and is_constant(node.right)
    return isinstance(node, ast.Constant)


def scopes(tree: ast.Module) -> Iterator[ast.Module | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the module and each of its functions."""
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of the functions inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_nodes(child)


def assignments(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """Return what each plain name of a scope is given."""
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if isinstance(node, ast.AugAssign):
            value = ast.BinOp(node.target, node.op, node.value)
        for target in targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(value)
    return found
