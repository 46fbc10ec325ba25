"""Each situation from the field is held by tests that are there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.recovery.expected import CASES
from tests.recovery.handed import HANDED

ROOT = Path(__file__).parents[2]
KEYS = {case.key for case in CASES}


def is_there(where: str) -> bool:
    """Say whether a case or a test exists."""
    if where.startswith("case:"):
        return where.removeprefix("case:") in KEYS
    file, _, name = where.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return any(isinstance(each, ast.FunctionDef) and each.name == name for each in tree.body)


@pytest.mark.parametrize("number", HANDED)
def test_a_situation_is_held_by_tests_that_exist(number: str) -> None:
    _, where = HANDED[number]
    assert [one for one in where if not is_there(one)] == []


def test_a_missing_test_is_seen() -> None:
    assert not is_there("case:nothing")
    assert not is_there("tests/recovery/test_handed.py::test_nothing")


def test_what_the_cases_name_is_in_the_table() -> None:
    named = {(number, f"case:{case.key}") for case in CASES for number in case.handed}
    listed = {(number, one) for number, (_, where) in HANDED.items() for one in where if one.startswith("case:")}
    assert named == listed
