"""How a run and its tasks are named on a command line, and how task instances are named to people."""

from __future__ import annotations

import argparse

import pytest

from airflow_aiflow.cli.run_address import TaskAddress, read_run, read_task, task_names


@pytest.mark.parametrize(
    ("text", "dag_id", "run_id"),
    [
        ("a/b", "a", "b"),
        ("invoices/scheduled__2026-11-29T18:00:00+00:00", "invoices", "scheduled__2026-11-29T18:00:00+00:00"),
        ("a.b-c/asset/triggered/1", "a.b-c", "asset/triggered/1"),
    ],
)
def test_the_first_slash_ends_the_dag(text: str, dag_id: str, run_id: str) -> None:
    run = read_run(text)
    assert (run.dag_id, run.run_id, str(run)) == (dag_id, run_id, text)


@pytest.mark.parametrize("text", ["", "a", "/b", "a/", "/"])
def test_what_names_no_run(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="DAG_ID/RUN_ID"):
        read_run(text)


def test_a_task_or_one_of_its_indexes() -> None:
    assert read_task("group.book") == TaskAddress("group.book")
    assert read_task("book[12]") == TaskAddress("book", 12)
    assert read_task("book").matches("book", 7)
    assert read_task("book[7]").matches("book", 7)
    assert not read_task("book[7]").matches("book", 8)
    assert not read_task("book").matches("books", -1)


@pytest.mark.parametrize("text", ["", "book[", "book[]", "book[-1]", "book[1]x", "[1]", "book[a]"])
def test_what_names_no_task(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="TASK_ID"):
        read_task(text)


@pytest.mark.parametrize(
    ("instances", "names"),
    [
        ([("mail", -1)], "mail"),
        ([("book", 0)], "book[0]"),
        ([("book", 2), ("book", 0), ("book", 1)], "book[0..2]"),
        ([("book", 0), ("book", 2), ("book", 3), ("mail", -1)], "book[0, 2..3], mail"),
        ([], ""),
    ],
)
def test_indexes_that_follow_each_other_are_named_in_one(instances: list[tuple[str, int]], names: str) -> None:
    assert task_names(instances) == names
