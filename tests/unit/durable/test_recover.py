"""What becomes of a stalled execution: every kind, every "never", the limits, and what holds for any evidence."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from airflow_aiflow.durable.attempt import Counters, Owner, Recovery
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RENEW_SECONDS, RecoveryPolicy, decide, hung_after, is_down, throttle, tier
from airflow_aiflow.durable.stall import (
    KINDS,
    Decision,
    Evidence,
    History,
    Leave,
    OpenWork,
    Pulse,
    Quarantine,
    Requeue,
    Seen,
    Settle,
    Stall,
    StallKind,
)

POLICY = RecoveryPolicy()
MINE, LATER = UUID(int=7), UUID(int=8)
COUNTERS = Counters(MINE, try_number=1, max_tries=2, retries=2, clear_number=0, run_after=None)
OWNER = Owner("worker-7", "a boot", 4026531836, 4711, 99, str(MINE))


def stall(**parts: Any) -> Stall:
    """Make one whose lease lapsed ten seconds ago."""
    plain: dict[str, Any] = {
        "execution_pk": 1,
        "execution": ExecutionId("billing", "run", "pay"),
        "fence": 3,
        "state": ExecutionState.RUNNING,
        "counters": COUNTERS,
        "owner": OWNER,
        "since": 120.0,
        "lease_left": -10.0,
        "idle": 40.0,
        "step": "page",
        "place": "in step 'page'",
    }
    return Stall(**(plain | parts))


def evidence(
    airflow_s: str | None = "running",
    /,
    *,
    dead: bool | None = None,
    history: History | None = None,
    seen: dict[str, Any] | None = None,
    **parts: Any,
) -> Evidence:
    """Make the evidence about one stall; Airflow's words are those about the attempt that the ledger knows."""
    airflow: dict[str, Any] = {"ti_id": MINE, "state": airflow_s, "try_number": 1, "run_state": "running"}
    return Evidence(stall(**parts), Seen(**(airflow | (seen or {}))), history or History(), dead)


LIVE: dict[str, Any] = {"lease_left": 25.0, "idle": 5.0, "basis": "live"}
HANGS: dict[str, Any] = LIVE | {"idle": 700.0}
SUCCEEDED: dict[str, Any] = {
    "state": ExecutionState.SUCCEEDED,
    "lease_left": None,
    "idle": None,
    "deaths": 0,
    "deaths_here": 0,
}
PAUSED: dict[str, Any] = SUCCEEDED | {"state": ExecutionState.PAUSED, "pause_reason": "sleeps until noon"}
ENDED = {"run_state": "failed"}
NEXT = {"ti_id": LATER, "try_number": 2}

#: (what, evidence, kind, whether Airflow's state is set first).
REQUEUED = [
    ("a lapsed lease", evidence(), StallKind.DEAD_WORKER, True),
    ("a process that is gone, its lease lapsed", evidence(dead=True), StallKind.DEAD_WORKER, True),
    (
        "a process that is gone under its lease",
        evidence(dead=True, **LIVE, first_seen=2.5),
        StallKind.DEAD_WORKER,
        True,
    ),
    ("Airflow waits to retry", evidence("up_for_retry", seen=NEXT), StallKind.DEAD_PROCESS, False),
    ("Airflow has no retries left", evidence("failed"), StallKind.EXHAUSTED, False),
    ("... under the next id", evidence("failed", seen=NEXT), StallKind.EXHAUSTED, False),
    ("the worker that a clear waits for is gone", evidence("restarting"), StallKind.RESTARTING, True),
    ("an orphan without its lease", evidence(dead=False, lease_left=-61.0), StallKind.SPLIT_BRAIN, True),
    ("... that Airflow gave up", evidence("failed", dead=False, lease_left=-61.0), StallKind.SPLIT_BRAIN, False),
    ("... that let its lease go", evidence("up_for_retry", dead=False, lease_left=None), StallKind.SPLIT_BRAIN, False),
    ("no step for too long", evidence(**HANGS), StallKind.HUNG, True),
    ("no step for too long, alive", evidence(dead=False, **HANGS), StallKind.HUNG, True),
    ("done, and Airflow gave it up", evidence("failed", **SUCCEEDED), StallKind.UNHEARD, False),
    ("done, and Airflow retries", evidence("up_for_retry", seen=NEXT, **SUCCEEDED), StallKind.UNHEARD, False),
    ("done, and a later try died unseen", evidence("failed", seen=NEXT, **SUCCEEDED), StallKind.UNHEARD, False),
    ("done, its process gone", evidence("running", dead=True, **SUCCEEDED), StallKind.UNHEARD, True),
    ("done, cleared while it ran", evidence("restarting", dead=True, **SUCCEEDED), StallKind.UNHEARD, True),
    ("paused, and Airflow gave it up", evidence("failed", **PAUSED), StallKind.LOST_RETURN, False),
    ("paused, and Airflow retries", evidence("up_for_retry", seen=NEXT, **PAUSED), StallKind.LOST_RETURN, False),
    ("queued for ever", evidence("queued", seen={"age": 601.0}), StallKind.NOT_STARTED, False),
    ("paused, queued for ever", evidence("queued", seen={"age": 601.0}, **PAUSED), StallKind.NOT_STARTED, False),
    ("done, queued for ever", evidence("queued", seen={"age": 601.0}, **SUCCEEDED), StallKind.NOT_STARTED, False),
    ("cleared, and its run ended at that moment", evidence(None, seen=ENDED), StallKind.EXHAUSTED, False),
    ("... done", evidence(None, seen=ENDED, **SUCCEEDED), StallKind.UNHEARD, False),
    ("... paused", evidence(None, seen=ENDED, **PAUSED), StallKind.LOST_RETURN, False),
]


@pytest.mark.parametrize(("what", "found", "kind", "force"), REQUEUED, ids=[row[0] for row in REQUEUED])
def test_what_is_requeued(what: str, found: Evidence, kind: StallKind, force: bool) -> None:
    decision = decide(found, POLICY)
    assert isinstance(decision, Requeue), decision
    assert (decision.kind, decision.force) == (kind, force)
    assert decision.report is (kind in (StallKind.HUNG, StallKind.NOT_STARTED))


def test_every_kind_of_the_table_is_requeued_but_those_that_no_execution_shows() -> None:
    outside = {StallKind.IDLE_RUN, StallKind.UNMADE_RUN}
    assert {kind for _, _, kind, _ in REQUEUED} == set(KINDS) - outside == set(StallKind) - outside


#: (what, evidence, whether open effects are put in doubt, whether somebody hears of it).
LEFT = [
    ("at work", evidence(**LIVE), False, False),
    ("at work, whatever Airflow says of a duplicate", evidence("failed", **LIVE), False, False),
    ("hung, and being ended", evidence("failed", **HANGS), False, False),
    ("Airflow knows it no more", evidence(None, seen={"ti_id": None}), True, False),
    ("its map index was removed", evidence("removed"), True, False),
    ("skipped", evidence("skipped"), True, False),
    ("something above it failed", evidence("upstream_failed"), True, False),
    ("marked failed by a person", evidence("failed", seen={"person": "anna set it to failed"}), True, False),
    ("marked success by a person", evidence("success", seen={"person": "anna set it to success"}), True, False),
    ("a person's word while it runs", evidence("running", seen={"person": "anna set the run to failed"}), False, False),
    ("a person's word on a success", evidence("failed", seen={"person": "anna"}, **SUCCEEDED), True, False),
    ("a person's word on a pause", evidence("failed", seen={"person": "anna"}, **PAUSED), True, False),
    ("success by somebody's word", evidence("success"), True, False),
    ("the code's own error", evidence("failed", **SUCCEEDED | {"state": ExecutionState.FAILED}), False, False),
    ("cancelled", evidence("failed", **SUCCEEDED | {"state": ExecutionState.CANCELLED}), False, False),
    ("a later attempt is starting", evidence("running", seen=NEXT), False, False),
    ("... with the same id", evidence("running", seen={"try_number": 2}), False, False),
    ("done, a later attempt is starting", evidence("running", seen=NEXT, dead=True, **SUCCEEDED), False, False),
    ("done just now", evidence("running", dead=True, **SUCCEEDED | {"since": 10.0}), False, False),
    ("done, and its process goes on", evidence("running", dead=False, **SUCCEEDED), False, False),
    ("done, and nobody knows of its process", evidence("running", **SUCCEEDED), False, False),
    ("done again, and what follows its flow fails", evidence("failed", unheard=1, **SUCCEEDED), True, True),
    ("... with tries left", evidence("up_for_retry", unheard=1, seen=NEXT, **SUCCEEDED), False, True),
    ("paused, the next visit is starting", evidence("running", dead=True, **PAUSED), False, False),
    ("paused just now", evidence("failed", **PAUSED | {"since": 10.0}), False, False),
    ("paused, success by a person's word", evidence("success", **PAUSED), True, False),
    ("its own deferral failed", evidence("failed", **PAUSED | {"pause_reason": None}), True, True),
    ("its own deferral is retried", evidence("up_for_retry", **PAUSED | {"pause_reason": None}), False, False),
    ("just died under its lease", evidence(dead=True, **LIVE), False, False),
    ("... a second ago", evidence(dead=True, **LIVE, first_seen=1.0), False, False),
    ("alive, may renew", evidence(dead=False), False, False),
    ("the task says off", evidence(recovery="off"), False, True),
    ("its DAG is paused", evidence(seen={"dag_paused": True}), False, True),
    ("queued for ever beside one at work", evidence("queued", seen={"age": 9e9}, **HANGS), False, False),
    ("queued a while", evidence("queued", seen={"age": 599.0}), False, False),
    ("a word that Airflow did not know when this was written", evidence("dreaming"), False, False),
    *((f"coming: {state}", evidence(state), False, False) for state in (None, "scheduled", "queued", "deferred")),
    *((f"coming: {state}", evidence(state), False, False) for state in ("up_for_reschedule", "awaiting_input")),
    *((f"paused: {state}", evidence(state, **PAUSED), False, False) for state in ("up_for_reschedule", "deferred")),
    *((f"done: {state}", evidence(state, **SUCCEEDED), False, False) for state in (None, "queued")),
    ("to be scheduled in a run at work", evidence(None, seen={"run_state": "running"}), False, False),
]


@pytest.mark.parametrize(("what", "found", "final", "report"), LEFT, ids=[row[0] for row in LEFT])
def test_what_is_left_alone(what: str, found: Evidence, final: bool, report: bool) -> None:
    decision = decide(found, POLICY)
    assert isinstance(decision, Leave), decision
    assert (decision.final, decision.report) == (final, report)
    assert decision.check_in > 0


@pytest.mark.parametrize("state", ["success", "skipped"])
@pytest.mark.parametrize("person", [None, "anna set it to success"])
def test_a_success_that_airflow_has_heard_of_is_settled(state: str, person: str | None) -> None:
    assert isinstance(decide(evidence(state, seen={"person": person}, **SUCCEEDED), POLICY), Settle)


def test_a_mark_of_many_at_once_is_a_persons_word_unless_we_made_it() -> None:
    unsigned = {"unsigned": True}
    for parts in ({}, PAUSED, SUCCEEDED):
        left = decide(evidence("failed", seen=unsigned, **parts), POLICY)
        assert isinstance(left, Leave)
        assert (left.final, left.report) == (True, False)
    # Set by a pass of ours that was killed before it could clear.
    assert isinstance(decide(evidence("failed", seen=unsigned, marks=1), POLICY), Requeue)


CUT_OFF: dict[str, Any] = {"cut_off": True}

#: (what, evidence, whether it is left for a while).
TAKEN_OVER = [
    ("found just now", evidence(**CUT_OFF), True),
    ("found a while ago", evidence(first_seen=29.0, **CUT_OFF), True),
    ("not renewed within its time", evidence(first_seen=31.0, **CUT_OFF), False),
    ("its process is gone", evidence(dead=True, **CUT_OFF), False),
    ("Airflow knows of its end", evidence("up_for_retry", seen=NEXT, **CUT_OFF), False),
    ("it is renewed by nobody since", evidence(), False),
]


@pytest.mark.parametrize(("what", "found", "left"), TAKEN_OVER, ids=[row[0] for row in TAKEN_OVER])
def test_a_lease_that_lapsed_in_a_fail_over_gets_time_to_be_renewed(what: str, found: Evidence, left: bool) -> None:
    decision = decide(found, POLICY)
    assert isinstance(decision, Leave if left else Requeue), what
    if isinstance(decision, Leave):
        assert decision.check_in == RENEW_SECONDS - (found.stall.first_seen or 0.0)
        assert not decision.report


def test_paused_dags_are_requeued_where_that_is_allowed() -> None:
    found = evidence(seen={"dag_paused": True})
    assert isinstance(decide(found, replace(POLICY, paused_dags=True)), Requeue)


# --- how long until the next look ---


def check_in(found: Evidence) -> float:
    decision = decide(found, POLICY)
    assert isinstance(decision, Leave), decision
    return decision.check_in


def test_the_next_look_comes_when_the_answer_may_be_another() -> None:
    assert check_in(evidence(dead=False, lease_left=-20.0)) == 40.0
    assert check_in(evidence(**LIVE | {"idle": 500.0})) == 100.0
    assert check_in(evidence("running", dead=True, **SUCCEEDED | {"since": 20.0})) == 40.0
    assert check_in(evidence("failed", **PAUSED | {"since": 20.0})) == 40.0
    assert check_in(evidence(dead=True, **LIVE)) == POLICY.settle_after


# --- hung ---

HUNG_AFTER = [
    ("nothing is known", History(), {}, 600.0),
    ("a quick step", History(step_p95=2.0), {}, 600.0),
    ("a slow step", History(step_p95=400.0), {}, 1200.0),
    ("a step with a long timeout", History(step_p95=400.0), {"step_timeout": 3600.0}, 3600.0),
    ("a step with a short timeout", History(), {"step_timeout": 5.0}, 600.0),
    ("a slow task, in a quick step", History(task_p50=4000.0, step_p95=2.0), {}, 600.0),
    ("a slow task, between its steps", History(task_p50=4000.0), {"step": None}, 12_000.0),
]


@pytest.mark.parametrize(("what", "history", "parts", "seconds"), HUNG_AFTER, ids=[row[0] for row in HUNG_AFTER])
def test_a_silence_is_measured_by_its_own_past(
    what: str, history: History, parts: dict[str, Any], seconds: float
) -> None:
    found = evidence(history=history, **LIVE | {"idle": seconds} | parts)
    assert hung_after(found, POLICY) == seconds
    assert isinstance(decide(found, POLICY), Leave)
    longer = replace(found, stall=replace(found.stall, idle=seconds + 1))
    assert isinstance(decide(longer, POLICY), Requeue)


def test_a_hang_names_where() -> None:
    hung = decide(evidence(**HANGS), POLICY)
    assert isinstance(hung, Requeue)
    assert "700 s, more than 600 s, in step 'page'" in hung.why
    assert "in its body" in decide(evidence(**HANGS | {"step": None}), POLICY).why


def test_a_silence_without_any_history_ends_an_attempt_once() -> None:
    again = HANGS | {"deaths": 2, "deaths_here": 2}
    left = decide(evidence(**again), POLICY)
    assert isinstance(left, Leave)
    assert (left.kind, left.report) == (StallKind.HUNG, True)
    assert "give it a timeout" in left.why
    for history, parts in ((History(step_p95=1.0), {}), (History(), {"step_timeout": 60.0})):
        assert isinstance(decide(evidence(history=history, **again | parts), POLICY), Requeue)


# --- limits ---


@pytest.mark.parametrize(("state", "dead"), [("running", True), ("up_for_retry", None), ("failed", None)])
def test_deaths_in_the_same_step_end_in_quarantine_with_the_step_named(state: str, dead: bool | None) -> None:
    assert isinstance(decide(evidence(state, dead=dead, deaths=2, deaths_here=2), POLICY), Requeue)
    decision = decide(evidence(state, dead=dead, deaths=3, deaths_here=3), POLICY)
    assert isinstance(decision, Quarantine)
    assert "3 attempts died in step 'page'" in decision.why


def test_deaths_with_progress_between_them_are_no_quarantine() -> None:
    assert isinstance(decide(evidence(deaths=9, deaths_here=1), POLICY), Requeue)


@pytest.mark.parametrize(
    "found",
    [
        evidence("failed", **SUCCEEDED | {"deaths_here": 3}),
        evidence("failed", **PAUSED | {"deaths_here": 3}),
        evidence("queued", seen={"age": 700.0}, deaths_here=3),
    ],
)
def test_what_did_not_die_is_not_quarantined(found: Evidence) -> None:
    assert isinstance(decide(found, POLICY), Requeue)


def recovered(times: int, ago: float = 1e9, **parts: Any) -> dict[str, Any]:
    return {"recoveries": times, "requeued_ago": ago} | parts


@pytest.mark.parametrize(("own", "most"), [(None, 5), (2, 2), (7, 7)])
def test_recoveries_are_counted(own: int | None, most: int) -> None:
    assert isinstance(decide(evidence(max_recoveries=own, **recovered(most - 1)), POLICY), Requeue)
    for state in ("running", "failed"):
        decision = decide(evidence(state, max_recoveries=own, **recovered(most)), POLICY)
        assert isinstance(decision, Quarantine)
        assert f"recovered {most} times" in decision.why


@pytest.mark.parametrize(
    ("found", "final"),
    [
        (evidence("up_for_retry", **recovered(5)), False),  # Airflow has tries left
        (evidence("failed", max_recoveries=0), True),
        (evidence("running", max_recoveries=0), False),
        (evidence("failed", **SUCCEEDED | recovered(5)), True),
        (evidence("failed", **PAUSED | recovered(5)), True),
        (evidence("queued", seen={"age": 700.0}, **recovered(5)), False),
    ],
)
def test_where_recoveries_are_spent_nothing_is_taken_away(found: Evidence, final: bool) -> None:
    decision = decide(found, POLICY)
    assert isinstance(decision, Leave)
    assert (decision.report, decision.final) == (True, final)


@pytest.mark.parametrize(("times", "seconds"), [(0, 0.0), (1, 30.0), (2, 60.0), (3, 120.0), (4, 240.0)])
def test_the_first_comes_at_once_and_the_next_ones_ever_later(times: int, seconds: float) -> None:
    if times:
        early = decide(evidence(**recovered(times, seconds - 1)), POLICY)
        assert isinstance(early, Leave)
        assert early.check_in == 1.0
        assert early.kind is StallKind.DEAD_WORKER
    assert isinstance(decide(evidence(**recovered(times, seconds)), POLICY), Requeue)


def test_a_thousand_recoveries_are_no_overflow() -> None:
    found = evidence(max_recoveries=10**9, **recovered(5_000, 1.0))
    assert isinstance(decide(found, POLICY), Leave)


# --- tiers ---


@pytest.mark.parametrize(
    ("word", "p50", "how"),
    [
        ("auto", None, "resume"),
        ("auto", 59.0, "rerun"),
        ("auto", 60.0, "resume"),
        ("auto", 300.0, "resume"),
        ("auto", 301.0, "careful"),
        ("rerun", 9e9, "rerun"),
        ("careful", 1.0, "careful"),
        ("off", 1.0, "off"),
    ],
)
def test_a_tier_comes_from_the_author_or_from_the_history(word: Recovery, p50: float | None, how: Recovery) -> None:
    assert tier(word, History(task_p50=p50)) == how


def test_a_short_task_waits_for_nothing() -> None:
    assert isinstance(decide(evidence(recovery="rerun", **recovered(4, 0.0)), POLICY), Requeue)


def test_a_careful_one_waits_until_its_open_calls_have_ended_and_is_told() -> None:
    waits = decide(evidence(recovery="careful", open_work=OpenWork(1, 45.0)), POLICY)
    assert isinstance(waits, Leave)
    assert waits.check_in == 45.0
    for open_work in (OpenWork(1, -1.0), OpenWork(0, 45.0)):
        goes = decide(evidence(recovery="careful", open_work=open_work), POLICY)
        assert isinstance(goes, Requeue)
        assert goes.report
    assert isinstance(decide(evidence(recovery="resume", open_work=OpenWork(1, 45.0)), POLICY), Requeue)


# --- what holds for any evidence ---

STATES = [*ExecutionState]
WORDS = [
    *(None, "running", "restarting", "up_for_retry", "failed", "success", "queued", "scheduled", "deferred", "skipped"),
    *("removed", "upstream_failed", "up_for_reschedule", "awaiting_input"),
]


def any_evidence(draw: random.Random) -> Evidence:
    state = draw.choice(STATES)
    lease = draw.choice([None, -1e6, -70.0, -5.0, 20.0]) if state is ExecutionState.RUNNING else None
    return evidence(
        draw.choice(WORDS),
        dead=draw.choice([None, True, False]),
        history=History(draw.choice([None, 1.0, 100.0, 1e4]), draw.choice([None, 1.0, 1e4])),
        seen={
            "ti_id": draw.choice([MINE, MINE, LATER, None]),
            "try_number": draw.choice([1, 2]),
            "age": draw.choice([0.0, 1e4]),
            "dag_paused": draw.random() < 0.2,
            "person": draw.choice([None, None, None, "anna"]),
        },
        state=state,
        lease_left=lease,
        idle=None if lease is None else draw.choice([0.0, 700.0, 1e6]),
        since=draw.choice([0.0, 61.0, 1e6]),
        deaths_here=draw.choice([0, 1, 2, 3, 9]),
        recoveries=draw.choice([0, 1, 5]),
        requeued_ago=draw.choice([0.0, 1e9]),
        recovery=draw.choice(["auto", "rerun", "resume", "careful", "off"]),
        max_recoveries=draw.choice([None, 0, 9]),
        first_seen=draw.choice([None, 1.0, 100.0]),
        unheard=draw.choice([0, 0, 1]),
        pause_reason=draw.choice([None, "sleeps"]),
    )


def breaks_a_promise(found: Evidence, decision: Decision) -> str | None:
    """Say which of the "never"s a decision breaks."""
    stall, seen = found.stall, found.seen
    acts = isinstance(decision, Requeue | Quarantine)
    if acts and (seen.state == "success" or stall.state in (ExecutionState.FAILED, ExecutionState.CANCELLED)):
        return "touches what is done"
    if acts and stall.leased and not found.verified_dead and (stall.idle or 0.0) <= hung_after(found, POLICY):
        return "touches what is alive"
    if acts and seen.person is not None:
        return "acts against a person's word"
    if acts and (seen.ti_id is None or seen.dag_paused or stall.recovery == "off"):
        return "acts where it may not"
    if acts and seen.state == "running" and (seen.ti_id != MINE or seen.try_number > 1):
        return "ends a later attempt"
    if isinstance(decision, Quarantine) and stall.state is not ExecutionState.RUNNING:
        return "fails for good what has an outcome"
    if isinstance(decision, Settle) and (
        stall.state is not ExecutionState.SUCCEEDED or seen.state not in ("success", "skipped")
    ):
        return "notes a success that nobody saw"
    return None


def test_no_evidence_breaks_a_promise() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    seen = set()
    for _ in range(20_000):
        found = any_evidence(draw)
        decision = decide(found, POLICY)
        assert breaks_a_promise(found, decision) is None, (found, decision)
        seen.add(type(decision))
    assert seen == {Leave, Requeue, Quarantine, Settle}


# --- the throttle ---


def wishes(count: int) -> list[tuple[Evidence, Requeue]]:
    return [(evidence(execution_pk=number), Requeue(StallKind.DEAD_WORKER, "x")) for number in range(count)]


def went(found: list[tuple[Evidence, Requeue | Leave]]) -> list[int]:
    return [one.stall.execution_pk for one, what in found if isinstance(what, Requeue)]


def test_a_rate_limit_lets_the_first_through() -> None:
    found = throttle(wishes(400), Pulse(last_minute=100), POLICY)
    assert went(found) == list(range(200))
    rest = [what for _, what in found[200:]]
    assert all(isinstance(what, Leave) and not what.report and "300 requeues a minute" in what.why for what in rest)
    assert went(throttle(wishes(3), Pulse(last_minute=300), POLICY)) == []
    assert went(throttle(wishes(3), Pulse(last_minute=900), POLICY)) == []
    assert throttle([], Pulse(), POLICY) == []


def test_one_node_s_death_requeues_all_and_is_no_outage() -> None:
    assert went(throttle(wishes(250), Pulse(), POLICY)) == list(range(250))
    assert not is_down(Pulse(requeued=250, died_again=125), POLICY)


@pytest.mark.parametrize(("requeued", "died", "down"), [(9, 9, False), (10, 5, False), (10, 6, True), (250, 126, True)])
def test_a_platform_is_down_where_what_was_requeued_dies_again(requeued: int, died: int, down: bool) -> None:
    assert is_down(Pulse(requeued=requeued, died_again=died), POLICY) is down


def test_while_the_platform_is_down_one_a_minute_tries_and_one_is_told() -> None:
    down = Pulse(requeued=20, died_again=20, probe_ago=61.0)
    found = throttle(wishes(5), down, POLICY)
    assert went(found) == [0]
    leaves = [what for _, what in found if isinstance(what, Leave)]
    assert [what.report for what in leaves] == [True, False, False, False]
    assert all("20 of 20 requeued attempts died again" in what.why for what in leaves)
    assert went(throttle(wishes(5), replace(down, probe_ago=59.0), POLICY)) == []
    assert went(throttle(wishes(5), replace(down, probe_ago=None), POLICY)) == [0]
    # Also a probe is bound by the rate.
    assert went(throttle(wishes(5), replace(down, last_minute=300), POLICY)) == []


def test_the_table_of_kinds_is_complete_and_says_something() -> None:
    assert set(KINDS) == set(StallKind)
    assert all(text for row in KINDS.values() for text in (row.sign, row.action, row.alone))
    assert len({row.sign for row in KINDS.values()}) == len(KINDS)
