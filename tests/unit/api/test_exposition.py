"""Prometheus' text format: what its parser would stumble over is escaped, refused or left out."""

from __future__ import annotations

import math

import pytest

from airflow_aiflow.api.exposition import Family, Sample, exposition


def gauge(*samples: Sample, name: str = "aiflow_x", meaning: str = "What it is") -> Family:
    return Family(name, "gauge", meaning, samples)


def test_a_family_is_written_with_its_meaning_and_type() -> None:
    text = exposition([gauge(Sample(1, {"state": "live"}), Sample(2.5, {"state": "lapsed"}))])
    assert text == (
        '# HELP aiflow_x What it is\n# TYPE aiflow_x gauge\naiflow_x{state="live"} 1\naiflow_x{state="lapsed"} 2.5\n'
    )


def test_a_sample_without_labels_has_no_braces() -> None:
    assert exposition([gauge(Sample(3))]).splitlines()[-1] == "aiflow_x 3"


def test_a_label_that_looks_like_no_labels_is_kept() -> None:
    assert exposition([gauge(Sample(3, {"model": "{}"}))]).splitlines()[-1] == 'aiflow_x{model="{}"} 3'


def test_a_summary_has_sum_and_count() -> None:
    family = Family("aiflow_s", "summary", "m", [Sample(1.5, {}, "_sum"), Sample(2, {}, "_count")])
    assert exposition([family]).splitlines()[2:] == ["aiflow_s_sum 1.5", "aiflow_s_count 2"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('a"b', r"a\"b"),
        ("a\\b", r"a\\b"),
        ("a\nb", r"a\nb"),
        ('\\"\n', r"\\\"\n"),
        ("größe", "größe"),
        ("\ud800", "?"),
        ("", ""),
    ],
)
def test_labels_are_escaped(text: str, written: str) -> None:
    line = exposition([gauge(Sample(1, {"model": text}))]).splitlines()[-1]
    assert line == f'aiflow_x{{model="{written}"}} 1'


def test_a_meaning_is_escaped_but_for_quotes() -> None:
    assert exposition([gauge(Sample(1), meaning='a\nb\\c"d')]).splitlines()[0] == '# HELP aiflow_x a\\nb\\\\c"d'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (1e6, "1000000"),
        (0.1, "0.1"),
        (1e-9, "1e-09"),
        (2.0**60, "1.152921504606847e+18"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (True, "1"),
    ],
)
def test_numbers_are_read_back_by_go(value: float, written: str) -> None:
    assert exposition([gauge(Sample(value))]).splitlines()[-1] == f"aiflow_x {written}"


def test_a_family_without_samples_is_left_out() -> None:
    assert exposition([gauge()]) == ""


@pytest.mark.parametrize("name", ["aiflow.x", "", "1x", "x y", "x\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        exposition([gauge(Sample(1), name=name)])


@pytest.mark.parametrize("label", ["a.b", "", "1", "__name__", "a:b"])
def test_a_label_name_that_is_none_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        exposition([gauge(Sample(1, {label: "x"}))])


def test_a_name_comes_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        exposition([gauge(Sample(1)), gauge(Sample(2))])
