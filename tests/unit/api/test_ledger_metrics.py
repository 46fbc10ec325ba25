"""From the ledger's figures to named metrics, and the page that explains each of them."""

from __future__ import annotations

import re

import pytest

from airflow_aiflow.api.exposition import exposition
from airflow_aiflow.api.ledger_metrics import TOTALS, families
from airflow_aiflow.durable.figures import Ended, Figures, StoredCount
from tests.unit.source_tree import ROOT

FULL = Figures(
    totals={
        ("attempts_begun", "first"): 7,
        ("attempts_ended", "lapsed"): 2,
        ("steps", "llm"): 5,
        ("steps", "batch"): 4,
        ("intents", ""): 3,
        ("model_calls", 'a"b'): 5,
        ("model_tokens_in", "m"): 100,
        ("model_tokens_out", "m"): 40,
        ("model_cost", "m"): 0.25,
        ("model_calls_wasted", "m"): 1,
        ("model_calls_unpriced", "m"): 1,
        ("incidents", "hung"): 2,
        ("detected_after", "hung"): 1400.5,
        ("recoveries", "hung"): 1,
        ("ready_steps", "retry"): 41,
        ("ready_calls", "retry"): 38,
        ("ready_cost", "retry"): 0.41,
    },
    behind=31.5,
    now={("leases", "live"): 3, ("executions", "running"): 3, ("in_doubt", ""): 1, ("questions", "doubt"): 1},
    ended=[Ended("succeeded", 3, 2), Ended("failed", 1, 0)],
    stored=[StoredCount("executions", "succeeded", 9e6, True), StoredCount("effects", "in_doubt", 1, False)],
    commit_seconds=0.004,
)


def lines(figures: Figures) -> list[str]:
    return exposition(families(figures)).splitlines()


@pytest.mark.parametrize(
    "line",
    [
        'aiflow_attempts_begun_total{sign="first"} 7',
        'aiflow_attempts_begun_total{sign="cleared"} 0',
        'aiflow_attempts_ended_total{ending="lapsed"} 2',
        'aiflow_attempts_ended_total{ending="superseded"} 0',
        'aiflow_steps_recorded_total{kind="batch"} 4',
        "aiflow_intents_total 3",
        'aiflow_model_calls_total{model="a\\"b"} 5',
        'aiflow_model_tokens_total{model="m",direction="in"} 100',
        'aiflow_model_tokens_total{model="m",direction="out"} 40',
        'aiflow_model_cost_dollars_total{model="m"} 0.25',
        'aiflow_replay_steps_total{sign="retry"} 41',
        'aiflow_replay_cost_dollars_total{sign="retry"} 0.41',
        'aiflow_stalls_total{kind="hung"} 2',
        'aiflow_stalls_total{kind="dead_worker"} 0',
        'aiflow_recoveries_total{kind="hung"} 1',
        'aiflow_recovery_detect_seconds_sum{kind="hung"} 1400.5',
        'aiflow_recovery_detect_seconds_count{kind="hung"} 2',
        'aiflow_leases{state="live"} 3',
        'aiflow_leases{state="lapsed"} 0',
        'aiflow_executions{state="running"} 3',
        'aiflow_executions{state="succeeded"} 9000000',
        'aiflow_effects{state="in_doubt"} 1',
        'aiflow_estimated{table="executions"} 1',
        'aiflow_estimated{table="effects"} 0',
        "aiflow_effects_in_doubt 1",
        'aiflow_questions_open{kind="doubt"} 1',
        'aiflow_questions_open{kind="approval"} 0',
        'aiflow_executions_ended_last_hour{state="cancelled"} 0',
        "aiflow_success_ratio 0.75",
        "aiflow_recoveries_mean 0.5",
        "aiflow_ledger_commit_seconds 0.004",
        "aiflow_totals_behind_seconds 31.5",
    ],
)
def test_a_figure_reaches_its_metric(line: str) -> None:
    assert line in lines(FULL)


def test_each_figure_is_told() -> None:
    """A total that nothing tells would be counted in vain."""
    told = {total.figure for total in TOTALS} | {"model_tokens_in", "model_tokens_out", "detected_after"}
    sql = (ROOT / "airflow_aiflow" / "storage" / "sql" / "tally_take.sql").read_text()
    counted = set(re.findall(r"select '(\w+)'", sql)) | set(re.findall(r"\('(\w+)'\)", sql))
    assert counted == told


def test_nothing_ended_says_nothing_of_success() -> None:
    assert not any(line.startswith(("aiflow_success_ratio", "aiflow_recoveries_mean")) for line in lines(Figures()))


def test_a_large_table_without_statistics_is_not_told_as_empty() -> None:
    told = lines(Figures(now={("executions", "running"): 2, ("executions", "paused"): 0}))
    assert [line for line in told if line.startswith("aiflow_executions{")] == [
        'aiflow_executions{state="running"} 2',
        'aiflow_executions{state="paused"} 0',
    ]
    assert not any(line.startswith("aiflow_effects{") for line in told)


def test_counters_are_called_totals_and_nothing_else_is() -> None:
    for family in families(FULL):
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert family.name.startswith("aiflow_")


def test_the_page_has_every_metric_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    table = set(re.findall(r"^\| `(aiflow_\w+)`", page, re.MULTILINE))
    assert table == {family.name for family in families(FULL)}
