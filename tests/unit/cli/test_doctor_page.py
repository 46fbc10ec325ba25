"""The page of `aiflow doctor` and its checks are one list; a check that fails itself hides no other."""

from __future__ import annotations

from typing import Any, cast

import pytest

from airflow_aiflow.cli.doctor.checks import CHECKS
from airflow_aiflow.cli.doctor.finding import Check, Finding, Level, Source, UnreadError, carry_out, chosen, ok
from airflow_aiflow.cli.doctor.report import HIDDEN, as_json, as_text, masked
from airflow_aiflow.exceptions import AiflowConfigError
from tests.pages import DOCS

NOTHING = cast("Any", None)


def test_the_page_lists_every_check_with_its_fix() -> None:
    lines = (DOCS / "operations" / "doctor.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
    assert rows == [[f"`{one.name}`", one.looks, one.mend] for one in CHECKS]


def test_names_are_unique_and_have_a_part() -> None:
    names = [one.name for one in CHECKS]
    assert len(set(names)) == len(names)
    assert all(name.count(".") == 1 for name in names)


def failing(error: Exception) -> Check:
    def look(sources: object) -> Finding:
        raise error

    return Check("part.thing", "looks", "set `THIS`", look)


def test_a_check_that_fails_is_a_finding() -> None:
    wrong = carry_out(failing(AiflowConfigError("the option is wrong")), NOTHING)
    assert wrong == Finding(Level.ERROR, "the option is wrong", "what needs it does not work", "set THIS")
    # A driver's own words may hold an address with its password: its kind is enough.
    broken = carry_out(failing(RuntimeError("postgresql://u:hush@h/d")), NOTHING)
    assert (broken.level, broken.found) == (Level.ERROR, "the check itself failed: RuntimeError")
    unread = carry_out(failing(UnreadError("not checked: see part.other")), NOTHING)
    assert unread == Finding(Level.WARNING, "not checked: see part.other")


def test_what_can_not_be_read_is_told_once() -> None:
    asked: list[int] = []

    def read() -> int:
        asked.append(1)
        raise AiflowConfigError("no address")

    source = Source("part.first", read)
    with pytest.raises(AiflowConfigError, match="no address"):
        source.get()
    with pytest.raises(UnreadError, match=r"see part\.first"):
        source.get()
    assert asked == [1]


def test_checks_are_chosen_by_name_or_part() -> None:
    assert [one.name for one in chosen(CHECKS, ["ledger.rights"], [])] == ["ledger.rights"]
    assert {one.name.partition(".")[0] for one in chosen(CHECKS, ["ledger", "clock"], ["clock.api"])} == {
        "ledger",
        "clock",
    }
    assert len(chosen(CHECKS, [], ["recovery"])) == len(CHECKS) - 2


def test_a_secret_is_taken_out_of_whatever_a_check_said() -> None:
    finding = Finding(Level.ERROR, "the server said pass=hush-hush", "hush-hush", "set hush-hush")
    clean = masked(finding, ["hush-hush", "", "no"])
    assert "hush" not in f"{clean}"
    assert clean.found == f"the server said pass={HIDDEN}"


def test_the_report_counts() -> None:
    found = {
        "a.b": ok("fine"),
        "a.c": Finding(Level.WARNING, "hm", "it means", "mend"),
        "a.d": Finding(Level.ERROR, "no"),
    }
    report = as_json(found)
    assert (report["errors"], report["warnings"], len(report["findings"])) == (1, 1, 3)
    text = as_text(found)
    assert text.splitlines()[-1] == "3 checks: 1 errors, 1 warnings"
    assert "fix:   mend" in text
