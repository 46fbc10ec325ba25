"""What is read from Airflow's context, and what is made of it."""

from __future__ import annotations

import datetime as dt
import os
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from airflow_aiflow.durable.attempt import NOTHING_ABOVE
from airflow_aiflow.durable.hold import held
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.hooks.attempt import attempt_from_context

RUN_AFTER = dt.datetime(2026, 11, 29, 18, tzinfo=dt.UTC)
TI_ID = UUID("01930000-0000-7000-8000-000000000001")
ABOVE = {"list_docs", "load"}


def crumbs(*rows: tuple[str, int, float | None]) -> list[dict[str, Any]]:
    return [{"task_id": task, "map_index": index, "duration": seconds} for task, index, seconds in rows]


RAN = crumbs(("list_docs", -1, 1.000001), ("load", 0, 2.5), ("load", 1, 2.25), ("beside", -1, 9.0))


def kind_of(task_id: str) -> Any:
    return SimpleNamespace(is_setup=task_id == "make_cluster", is_teardown=task_id == "drop_cluster")


def context(
    *,
    map_index: int | None = -1,
    conf: Any = None,
    above: set[str] | None = None,
    ran: Any = (),
    is_setup: bool = False,
) -> Any:
    def breadcrumbs(dag_id: str, run_id: str) -> Any:
        assert (dag_id, run_id) == ("d", "r")
        if isinstance(ran, Exception):
            raise ran
        return ran

    ti = SimpleNamespace(
        id=TI_ID,
        dag_id="d",
        run_id="r",
        task_id="t",
        try_number=2,
        max_tries=3,
        map_index=map_index,
        get_task_breadcrumbs=breadcrumbs,
    )
    task = SimpleNamespace(
        retries=3,
        is_setup=is_setup,
        is_teardown=False,
        get_flat_relative_ids=lambda upstream: above or set(),
        get_dag=lambda: SimpleNamespace(get_task=kind_of),
    )
    return {
        "ti": ti,
        "task": task,
        "dag_run": SimpleNamespace(clear_number=1, run_after=RUN_AFTER, conf=conf),
        "logical_date": None,
    }


def digest_of(ran: Any) -> bytes | None:
    return attempt_from_context(context(above=ABOVE, ran=ran), on_clear="auto").upstream_digest


def test_every_counter_is_read_where_it_lives() -> None:
    attempt = attempt_from_context(context(), on_clear="resume")
    counters = attempt.counters
    assert str(attempt.execution) == "task t of d, run r"
    assert (counters.ti_id, counters.try_number, counters.max_tries, counters.retries) == (TI_ID, 2, 3, 3)
    assert (counters.clear_number, counters.run_after) == (1, RUN_AFTER)
    assert (attempt.owner.pid, attempt.owner.ti_id) == (os.getpid(), str(TI_ID))
    assert (attempt.mapped, attempt.setup_or_teardown, attempt.on_clear) == (False, False, "resume")


def test_an_attempt_of_a_held_run_reads_the_true_moment() -> None:
    """Else it would take its run for one that was made again, and begin anew."""
    given = context()
    given["dag_run"].run_after = held(RUN_AFTER)
    assert given["dag_run"].run_after != RUN_AFTER
    assert attempt_from_context(given, on_clear="resume").counters.run_after == RUN_AFTER


def test_the_author_s_word_on_recovery_goes_with_the_attempt() -> None:
    plain = attempt_from_context(context(), on_clear="auto")
    assert (plain.recovery, plain.max_recoveries) == ("auto", None)
    careful = attempt_from_context(context(), on_clear="auto", recovery="careful", max_recoveries=0)
    assert (careful.recovery, careful.max_recoveries) == ("careful", 0)


def test_the_labels_of_the_task_reach_the_attempt() -> None:
    assert attempt_from_context(context(), on_clear="auto").labels == {}
    assert attempt_from_context(context(), on_clear="auto", labels={"team": "legal"}).labels == {"team": "legal"}


@pytest.mark.parametrize(("map_index", "mapped"), [(None, False), (-1, False), (0, True), (7, True)])
def test_a_mapped_task_is_told_by_its_index(map_index: int | None, mapped: bool) -> None:
    attempt = attempt_from_context(context(map_index=map_index), on_clear="auto")
    assert attempt.mapped is mapped
    assert attempt.execution.map_index == (-1 if map_index is None else map_index)


def test_a_setup_task_says_so() -> None:
    assert attempt_from_context(context(is_setup=True), on_clear="auto").setup_or_teardown


@pytest.mark.parametrize(
    ("conf", "wanted"),
    [
        (None, "resume"),
        ({}, "resume"),
        ({"other": 1}, "resume"),
        ({"aiflow": {}}, "resume"),
        ({"aiflow": {"on_clear": "fresh"}}, "fresh"),
    ],
)
def test_the_runs_word_wins(conf: Any, wanted: str) -> None:
    assert attempt_from_context(context(conf=conf), on_clear="resume").on_clear == wanted


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"aiflow": {"on_clear": "sometimes"}}, "on_clear must be 'auto', 'resume' or 'fresh', got 'sometimes'"),
        ({"aiflow": "fresh"}, "must be an object"),
    ],
)
def test_a_wrong_word_of_the_run_is_told(conf: Any, message: str) -> None:
    with pytest.raises(AiflowConfigError, match=message):
        attempt_from_context(context(conf=conf), on_clear="auto")


def test_what_ran_above_is_hashed_to_the_microsecond() -> None:
    first = digest_of(RAN)
    assert first is not None
    assert digest_of(list(reversed(RAN))) == first
    assert digest_of([*RAN[:3], *crumbs(("beside", -1, 1.0))]) == first, "another branch changed nothing here"
    again = crumbs(("list_docs", -1, 1.000002), ("load", 0, 2.5), ("load", 1, 2.25))
    assert digest_of(again) != first
    swapped = crumbs(("list_docs", -1, 1.000001), ("load", 0, 2.25), ("load", 1, 2.5))
    assert digest_of(swapped) != first


def test_a_missing_duration_is_no_evidence() -> None:
    assert digest_of([*RAN, *crumbs(("load", 2, None), ("load", 3, 0.0))]) == digest_of(RAN)
    assert digest_of(crumbs(("load", 0, None))) == NOTHING_ABOVE, "what never ran can't have run again"


@pytest.mark.parametrize("above", [set(), {"make_cluster", "drop_cluster"}], ids=["nothing", "setups"])
def test_a_task_without_upstream_asks_nothing(above: set[str]) -> None:
    asked = context(above=above, ran=AssertionError("asked"))
    assert attempt_from_context(asked, on_clear="auto").upstream_digest == NOTHING_ABOVE


def test_setups_do_not_count_for_a_clear_clears_them_too() -> None:
    ran = [*RAN, *crumbs(("make_cluster", -1, 30.0), ("drop_cluster", -1, 5.0))]
    with_setups = attempt_from_context(
        context(above={*ABOVE, "make_cluster", "drop_cluster"}, ran=ran), on_clear="auto"
    )
    assert with_setups.upstream_digest == digest_of(RAN)


def test_evidence_that_cannot_be_had_costs_nothing(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert digest_of(ConnectionError("no API server")) is None
    assert "can't be read (no API server; by the REST API:" in caplog.text + capsys.readouterr().out
