"""What a look asks, decides and notes; and what it reads of Airflow's audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.stall import Leave, Pulse, Requeue, Settle, StallKind
from airflow_aiflow.recovery.airflow_view import AirflowView, made_at
from airflow_aiflow.recovery.one_pass import Look, look, note
from airflow_aiflow.runtime.process import this_owner
from tests.unit.recovery.doubles import NOW, AirflowDouble, LedgerDouble, ago, stalled, ti_id

EARLIER = NOW - timedelta(hours=1)


def look_at(ledger: LedgerDouble, airflow: AirflowDouble, **policy: Any) -> Look:
    return look(ledger.port(), airflow.api(), RecoveryPolicy(**policy))


def test_where_nothing_stalls_airflow_is_not_asked() -> None:
    airflow = AirflowDouble()
    assert look_at(LedgerDouble(), airflow).decided == ()
    assert airflow.asked == []


def test_what_is_left_alone_costs_one_request() -> None:
    stall = stalled()
    airflow = AirflowDouble()
    airflow.holds(stall, state="up_for_reschedule")
    [(_, what)] = look_at(LedgerDouble(stall), airflow).decided
    assert isinstance(what, Leave)
    assert airflow.asked == ["task_instances billing run pay"]


def test_a_run_that_is_gone_is_final() -> None:
    stall = stalled()
    ledger = LedgerDouble(stall)
    found = look_at(ledger, AirflowDouble())
    note(ledger.port(), found.notes)
    assert ledger.left == ["Airflow knows this task instance no more"]
    assert ledger.abandoned == [stall.execution]


def test_a_success_that_airflow_has_heard_of_is_noted() -> None:
    stall = stalled(state=ExecutionState.SUCCEEDED, lease_left=None)
    ledger, airflow = LedgerDouble(stall), AirflowDouble()
    airflow.holds(stall, state="success")
    found = look_at(ledger, airflow)
    assert [type(what) for _, what in found.decided] == [Settle]
    note(ledger.port(), found.notes)
    assert ledger.heard_of == [stall.execution]
    assert found.deeds == []


def test_a_process_that_is_gone_is_found_under_a_live_lease() -> None:
    gone = this_owner("a task")
    gone = type(gone)(**(gone.to_plain() | {"start": gone.start + 1}))
    stall = stalled(lease_left=25.0, owner=gone, first_seen=3.0)
    ledger, airflow = LedgerDouble(stall), AirflowDouble()
    ledger.owners = [(1, 1, gone)]
    airflow.holds(stall)
    found = look_at(ledger, airflow)
    assert (found.dead, [one.verified_dead for one, _ in found.deeds]) == ({(1, 1)}, [True])


def test_a_living_process_under_a_live_lease_is_no_candidate() -> None:
    mine = this_owner("a task")
    ledger = LedgerDouble(stalled(lease_left=25.0, owner=mine))
    ledger.owners = [(1, 1, mine)]
    found = look_at(ledger, AirflowDouble())
    assert (found.decided, found.owners) == ((), [mine])


def test_a_paused_dag_is_reported_and_left_alone() -> None:
    stall = stalled()
    ledger, airflow = LedgerDouble(stall), AirflowDouble()
    airflow.holds(stall)
    airflow.paused = {"billing"}
    found = look_at(ledger, airflow)
    assert (found.deeds, found.reports) == ([], True)
    assert len(look_at(ledger, airflow, paused_dags=True).deeds) == 1


def test_the_rate_is_kept() -> None:
    stalls = [stalled(number, map_index=number) for number in range(5)]
    ledger, airflow = LedgerDouble(*stalls), AirflowDouble()
    airflow.holds(*stalls)
    ledger.the_pulse = Pulse(last_minute=2)
    found = look_at(ledger, airflow, rate_per_minute=4)
    assert [one.stall.execution_pk for one, _ in found.deeds] == [0, 1]
    assert not found.reports


# --- a person's hand ---


@pytest.mark.parametrize(
    ("event", "sent"),
    [
        ("patch_task_instance", {"task_id": "pay", "new_state": "failed"}),
        ("patch_task_instance", {"task_id": "pay", "new_state": "success", "map_index": "-1"}),
        ("patch_task_instance", {"task_id": "root", "new_state": "failed", "include_downstream": True}),
        ("patch_task_group_instances", {"new_state": "failed", "group_id": "group"}),
        ("patch_dag_run", {"state": "failed"}),
    ],
)
def test_a_state_that_a_person_set_is_left_alone(event: str, sent: dict[str, Any]) -> None:
    stall = stalled()
    ledger, airflow = LedgerDouble(stall), AirflowDouble()
    airflow.holds(stall, state="failed")
    airflow.person(event, run_id="run", **sent)
    [(evidence, what)] = look_at(ledger, airflow).decided
    assert isinstance(what, Leave)
    assert (evidence.seen.person or "").startswith("ada set ")


def test_a_mark_of_many_runs_names_its_runs_in_what_was_sent() -> None:
    stall = stalled()
    airflow = AirflowDouble()
    airflow.holds(stall, state="failed")
    entities = [{"dag_run_id": "run", "state": "failed"}]
    airflow.person("bulk_dag_runs", actions=[{"action": "update", "entities": entities}])
    assert look_at(LedgerDouble(stall), airflow).deeds == []
    assert len(look_at(LedgerDouble(stalled(run_id="other")), _with(airflow, "other")).deeds) == 1


@pytest.mark.parametrize(
    ("kinds", "left"),
    [
        (["running"], True),
        (["running", "failed"], False),
        (["running", "heartbeat timeout"], False),
        (["running", "state mismatch"], False),
        ([], False),
    ],
    ids=["nobody's", "its supervisor's", "the scheduler's", "the executor's", "a log that is gone"],
)
def test_a_failure_that_nobody_signed_is_a_mark_of_many_at_once(kinds: list[str], left: bool) -> None:
    """Airflow keeps no entry of a change of many task instances, and one of every other way to fail."""
    stall = stalled()
    ledger, airflow = LedgerDouble(stall), AirflowDouble()
    airflow.holds(stall, state="failed")
    for kind in kinds:
        airflow.signed(kind, stall)
    airflow.signed("failed", stalled(2, map_index=3))
    airflow.signed("failed", stall, try_number=7)
    found = look_at(ledger, airflow)
    assert [one.seen.unsigned for one, _ in found.decided] == [left]
    assert len(found.deeds) == (0 if left else 1)


def test_our_own_mark_is_no_persons() -> None:
    stall = stalled(marked=True, marks=1)
    ledger, airflow = LedgerDouble(stall), AirflowDouble()
    airflow.holds(stall, state="failed")
    airflow.signed("running", stall)
    assert len(look_at(ledger, airflow).deeds) == 1


def _with(airflow: AirflowDouble, run_id: str) -> AirflowDouble:
    airflow.holds(stalled(run_id=run_id), state="failed")
    return airflow


@pytest.mark.parametrize(
    ("event", "sent"),
    [
        ("patch_task_instance", {"task_id": "other", "new_state": "failed"}),
        ("patch_task_instance", {"task_id": "pay", "new_state": "failed", "map_index": "7"}),
        ("patch_task_instance", {"task_id": "pay", "note": "look at this"}),
        ("patch_task_instance", {"task_id": "pay", "new_state": "failed", "at": NOW - timedelta(hours=1)}),
        ("patch_dag_run", {"state": "queued"}),
        ("post_clear_task_instances", {"task_ids": ["pay"]}),
    ],
    ids=["another task", "another index", "a note", "an earlier try", "a run that goes on", "a clear"],
)
def test_what_is_about_something_else_is_no_persons_word(event: str, sent: dict[str, Any]) -> None:
    stall = stalled()
    airflow = AirflowDouble()
    airflow.holds(stall)
    airflow.person(event, run_id="run", **sent)
    [(_, what)] = look_at(LedgerDouble(stall), airflow).decided
    assert isinstance(what, Requeue)
    assert what.kind is StallKind.DEAD_WORKER


def test_a_word_about_all_indexes_is_none_about_a_try_that_was_made_later() -> None:
    before, after = stalled(1, map_index=1), stalled(2, map_index=2)
    airflow = AirflowDouble()
    airflow.holds(before, after, state="failed")
    airflow.put(after.execution, "failed", id=str(ti_id(2, made=NOW - timedelta(minutes=1))))
    airflow.person(
        "patch_task_instance", at=NOW - timedelta(minutes=10), run_id="run", task_id="pay", new_state="failed"
    )
    seen = AirflowView(airflow.api())
    found = seen.closely(seen.read([before.execution, after.execution]))
    assert [found[one.execution].person is None for one in (before, after)] == [False, True]


def test_a_log_that_can_t_be_read_is_no_persons_word() -> None:
    stall = stalled()
    airflow = AirflowDouble()
    airflow.holds(stall)
    airflow.person("patch_task_instance", run_id="run", task_id="pay")
    for entry in airflow.log:
        entry["extra"] = "no JSON"
    assert len(look_at(LedgerDouble(stall), airflow).deeds) == 1


# --- times ---


def test_an_id_holds_the_time_at_which_it_was_made() -> None:
    assert made_at(ti_id(1, made=EARLIER)) == EARLIER


def test_ages_are_told_by_the_servers_clock() -> None:
    airflow = AirflowDouble()
    view = AirflowView(airflow.api())
    assert view.age(ago(90)) == 90
    assert view.age(None) == 0
    airflow.told_at = None
    assert view.age(ago(90)) == 0
