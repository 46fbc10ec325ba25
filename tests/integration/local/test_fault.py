"""The fault plan: which request meets which fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.fault import Fault, FaultPlan, write_faults
from airflow_aiflow.local.http_wire import WireError


@pytest.fixture
def control(tmp_path: Path) -> Path:
    return tmp_path / "control.json"


def kinds(plan: FaultPlan, *bodies: bytes) -> list[str | None]:
    return [fault.kind if (fault := plan.next(body)) else None for body in bodies]


def test_without_a_file_nothing_is_wrong(control: Path) -> None:
    assert kinds(FaultPlan(control), b"a") == [None]


def test_a_fault_meets_the_requests_it_was_meant_for(control: Path) -> None:
    write_faults(control, [Fault("cut", skip=1, first=2), Fault("status", contains="bad")])
    assert kinds(FaultPlan(control), b"a", b"b", b"bad", b"bad", b"good") == [None, "cut", "cut", "status", None]


def test_writing_again_arms_again_and_an_empty_list_disarms(control: Path) -> None:
    plan = FaultPlan(control)
    write_faults(control, [Fault("cut", first=1)])
    assert kinds(plan, b"a", b"b") == ["cut", None]
    write_faults(control, [Fault("cut", first=1)])
    assert kinds(plan, b"a", b"b") == ["cut", None]
    write_faults(control, [])
    assert kinds(plan, b"a") == [None]


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(StackError, match="fault kind 'explode' is unknown"):
        Fault("explode")  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["{", '{"faults": [{"kind": "explode"}]}', '{"faults": [{"sort": 1}]}', "[]"])
def test_a_damaged_file_is_named(control: Path, content: str) -> None:
    control.write_text(content)
    with pytest.raises(WireError, match="control file"):
        FaultPlan(control).next(b"")
