"""The ledger's SQL: one statement a file, values by name only, every name qualified."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from airflow_aiflow.storage.statements import statement

#: The ledger's, that of the dedup table in the databases that transactional effects change, and the server's own.
SCHEMAS = ("aiflow.", "aiflow_dedup.", "pg_catalog.")

#: Not a statement but several, run once by whoever owns a database.
SCRIPTS = {"dedup_install"}

NAMES = sorted(path.name.removesuffix(".sql") for path in files("airflow_aiflow.storage").joinpath("sql").iterdir())


def unqualified(text: str) -> set[str]:
    """Name the tables that a statement takes from the search path: what is neither ours, its own, nor a function."""
    text = re.sub(r"extract\(epoch from|substring\([^()]* from", "", text)
    own = set(re.findall(r"(\w+) (?:\([\w, ]+\) )?as (?:materialized )?\(", text))
    named = re.findall(r"\b(?:from|join|into|update|using)\s+([\w.]+)(?!\s*\()\b", text)
    kept = {"set", "of", "select", "lateral"}
    return {name for name in named if not name.startswith(SCHEMAS) and name not in own | kept}


def test_the_package_brings_its_statements() -> None:
    assert {"take_over", "intend", "settle", "record_one", "recorded"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_takes_values_by_name_alone(name: str) -> None:
    text = statement(name)
    assert re.sub(r"%\([a-z_0-9]+\)[sb]", "", text).count("%") == 0
    assert "{" not in text
    assert ";" not in text or name in SCRIPTS


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_relies_on_no_search_path(name: str) -> None:
    assert unqualified(statement(name)) == set()


def test_an_unqualified_table_is_found() -> None:
    assert unqualified("with up as (update lease set x = 1) select 1 from up join aiflow.step s on true") == {"lease"}


def test_a_statement_is_read_once_and_without_its_comments() -> None:
    assert statement("intend") is statement("intend")
    assert "--" not in statement("intend")
    assert statement("intend").startswith("with held as materialized (")


def test_no_statement_holds_what_looks_like_a_comment() -> None:
    for name in NAMES:
        raw = files("airflow_aiflow.storage").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
        assert not re.search(r"'[^'\n]*--[^'\n]*'", raw), name


@pytest.mark.parametrize("name", ["take_over", "intend", "doubt", "decide", "finish"])
def test_what_checks_the_fence_locks_the_row(name: str) -> None:
    assert re.search(r"for (update|share)", statement(name))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_database_s_clock_is_compared(name: str) -> None:
    """``now()`` is the transaction's start: a lease computed from it may have lapsed at the commit."""
    assert not re.search(r"\bnow\(\)|current_timestamp|transaction_timestamp", statement(name))
