"""What is done in Airflow and in the ledger, in which order, and what a person or another pass did meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.stall import Leave, Quarantine, Requeue, Stall, StallKind
from airflow_aiflow.exceptions import AirflowRefusedError, AirflowUnavailableError
from airflow_aiflow.recovery.deeds import Deed, Deeds
from airflow_aiflow.recovery.one_pass import look, note
from tests.unit.recovery.doubles import AirflowDouble, LedgerDouble, stalled, ti_id

REPORT = ExecutionId("billing", "run", "report")


def one_pass(ledger: LedgerDouble, airflow: AirflowDouble, policy: RecoveryPolicy | None = None) -> list[Deed]:
    """Look, note, act."""
    found = look(ledger.port(), airflow.api(), policy or RecoveryPolicy())
    note(ledger.port(), found.notes)
    return Deeds(ledger.port(), airflow.api(), dead=found.dead).carry_out(found.deeds)


def world(*stalls: Stall, state: str | None = "running") -> tuple[LedgerDouble, AirflowDouble]:
    ledger, airflow = LedgerDouble(*stalls), AirflowDouble()
    airflow.holds(*stalls, state=state)
    return ledger, airflow


def test_a_dead_workers_task_is_failed_and_cleared() -> None:
    stall = stalled()
    ledger, airflow = world(stall)
    [deed] = one_pass(ledger, airflow)
    assert isinstance(deed.done, Requeue)
    assert deed.done.kind is StallKind.DEAD_WORKER
    assert (airflow.cleared, airflow.state(stall.execution)) == ([["pay"]], None)
    assert ledger.states == {1: "cleared"}
    # Nothing stands between the two requests that the scheduler could use.
    assert airflow.asked.index("clear") == airflow.asked.index("set_state") + 1


@pytest.mark.parametrize("state", ["failed", "up_for_retry"])
def test_what_airflow_holds_for_ended_is_only_cleared(state: str) -> None:
    ledger, airflow = world(stalled(), state=state)
    one_pass(ledger, airflow)
    assert "set_state" not in airflow.asked
    assert airflow.cleared == [["pay"]]


def test_all_of_one_run_goes_in_one_clear() -> None:
    stalls = [stalled(number, map_index=number) for number in range(1, 251)]
    ledger, airflow = world(*stalls)
    assert len(one_pass(ledger, airflow)) == 250
    [names] = airflow.cleared
    assert sorted(names) == [["pay", number] for number in range(1, 251)]
    assert airflow.asked.count("set_state") == 1
    # Three pages for the look and three to read them again.
    assert airflow.asked.count("task_instances billing run pay") == 6


def test_each_run_has_its_own_clear() -> None:
    ledger, airflow = world(stalled(1, run_id="a"), stalled(2, run_id="b"))
    one_pass(ledger, airflow)
    assert airflow.cleared == [["pay"], ["pay"]]


def test_what_failed_below_runs_again_too() -> None:
    ledger, airflow = world(stalled(), state="failed")
    airflow.below = {"pay": ["report"], "report": ["mail"], "mail": [], "other": []}
    for number, task_id in enumerate(("report", "mail", "other"), 10):
        airflow.put(ExecutionId("billing", "run", task_id), "upstream_failed", number)
    one_pass(ledger, airflow)
    assert airflow.cleared == [["pay", "report", "mail"]]
    assert airflow.state(ExecutionId("billing", "run", "other")) == "upstream_failed"


def test_what_the_scheduler_fails_between_the_two_requests_is_mended() -> None:
    ledger, airflow = world(stalled())
    airflow.below = {"pay": ["report"], "report": []}
    airflow.put(REPORT, None, 10)

    def scheduler() -> None:
        airflow.put(REPORT, "upstream_failed", 10)
        airflow.run_states[("billing", "run")] = "failed"

    airflow.after_set = scheduler
    one_pass(ledger, airflow)
    assert airflow.cleared == [["pay"], ["report"]]
    assert airflow.run_states[("billing", "run")] == "queued"
    assert ledger.clears == [3]


def test_who_marks_it_first_acts_alone() -> None:
    ledger, airflow = world(stalled())
    ledger.states = {1: "marked"}
    assert one_pass(ledger, airflow) == []
    assert (airflow.cleared, ledger.notes) == ([], [])


@pytest.mark.parametrize(
    "change",
    [{"state": "failed"}, {"id": str(ti_id(2))}, {"try_number": 2}, {"state": None, "id": str(ti_id(2))}],
    ids=["failed", "cleared", "retried", "cleared and not scheduled"],
)
def test_what_has_changed_since_the_look_is_left_to_the_next_one(change: dict[str, Any]) -> None:
    stall = stalled()
    ledger, airflow = world(stall)
    found = look(ledger.port(), airflow.api(), RecoveryPolicy())
    airflow.rows[("billing", "run", "pay", -1)] |= change
    assert Deeds(ledger.port(), airflow.api()).carry_out(found.deeds) == []
    assert (ledger.states, airflow.cleared) == ({}, [])


def test_a_person_who_came_since_the_look_is_heeded() -> None:
    ledger, airflow = world(stalled())
    found = look(ledger.port(), airflow.api(), RecoveryPolicy())
    airflow.person("patch_task_instance", run_id="run", task_id="pay", new_state="failed")
    assert Deeds(ledger.port(), airflow.api()).carry_out(found.deeds) == []


def test_a_clear_that_meets_a_running_task_takes_its_mark_back() -> None:
    ledger, airflow = world(stalled(), state="failed")
    airflow.before_clear = lambda: airflow.put(stalled().execution, "running")
    [deed] = one_pass(ledger, airflow)
    assert isinstance(deed.done, Leave)
    assert not deed.done.report
    assert ledger.states == {1: "void"}


def test_a_refusal_is_told_and_not_tried_again_at_once() -> None:
    def refuse() -> None:
        raise AirflowRefusedError("POST", "/clear", 403, "no right")

    ledger, airflow = world(stalled())
    airflow.before_clear = refuse
    [deed] = one_pass(ledger, airflow)
    assert isinstance(deed.done, Leave)
    assert deed.done.report
    assert deed.done.check_in >= 60
    assert ledger.states == {1: "void"}


def test_an_airflow_that_is_gone_leaves_the_mark_for_the_next_pass() -> None:
    def gone() -> None:
        raise AirflowUnavailableError("no answer")

    ledger, airflow = world(stalled())
    airflow.before_clear = gone
    with pytest.raises(AirflowUnavailableError):
        one_pass(ledger, airflow)
    # It may have been carried out: the mark stands, and lapses by itself.
    assert ledger.states == {1: "marked"}


def test_one_whose_state_can_t_be_set_keeps_no_other_from_it() -> None:
    ledger, airflow = world(stalled(1, map_index=1), stalled(2, map_index=2))
    airflow.stuck = {("pay", 1)}
    done = {deed.incident.execution.map_index: type(deed.done) for deed in one_pass(ledger, airflow)}
    assert done == {1: Leave, 2: Requeue}
    assert airflow.cleared == [[["pay", 2]]]
    assert ledger.states == {1: "void", 2: "cleared"}


def test_what_dies_each_time_is_given_up() -> None:
    stall = stalled(deaths=3, deaths_here=3, place="in step 'page'")
    ledger, airflow = world(stall)
    [deed] = one_pass(ledger, airflow)
    assert isinstance(deed.done, Quarantine)
    assert "in step 'page'" in deed.done.why
    assert (airflow.state(stall.execution), airflow.cleared) == ("failed", [])
    assert (ledger.abandoned, ledger.states) == ([stall.execution], {1: "void"})


def test_what_another_pass_is_at_or_has_come_back_to_life_is_not_given_up() -> None:
    stall = stalled(deaths=3, deaths_here=3)
    ledger, airflow = world(stall)
    ledger.states = {1: "marked"}  # the ledger's word: not yours
    assert one_pass(ledger, airflow) == []
    assert (airflow.state(stall.execution), ledger.abandoned, "set_state" in airflow.asked) == ("running", [], False)


def test_what_is_given_up_and_has_failed_ends_no_watch() -> None:
    stall = stalled(deaths=3, deaths_here=3)
    ledger, airflow = world(stall, state="failed")
    assert one_pass(ledger, airflow) == []
    assert [type(what) for _, what in ledger.notes] == [Quarantine]
    assert ledger.abandoned == [stall.execution]
