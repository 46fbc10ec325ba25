"""Recovery's side of a real ledger: what it finds, what it leaves alone, and that a mark is one process's alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.stall import Leave, Quarantine, Requeue, Settle, Stall, StallKind
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres_recovery import MARK_SECONDS, REQUEUED_SECONDS
from tests.contract.ledger_world import TTL, an_effect, an_intent, owner_of, take, uuid7
from tests.integration.storage.recovery_world import SCAN, RecoveryWorld, Task
from tests.integration.storage.test_postgres_ledger import name_of

DEAD = StallKind.DEAD_WORKER


@pytest.fixture(scope="module")
def addresses(postgres_server: PostgresServer) -> tuple[str, str]:
    """Give the addresses of one upgraded ledger, for tasks and for its owner."""
    owner = postgres_server.fresh_database("recovery")
    migrate.upgrade(owner)
    return postgres_server.dsn(name_of(owner)), owner


@pytest.fixture
def world(addresses: tuple[str, str]) -> Iterator[RecoveryWorld]:
    """Give an empty ledger."""
    made = RecoveryWorld(*addresses)
    made.forget()
    yield made
    made.close()


@pytest.fixture
def task(world: RecoveryWorld) -> Task:
    """Give a task at work."""
    made = Task(world)
    made.next()
    return made


# --- what is found ---


def test_each_kind_of_stall_is_found_by_its_own_sign(world: RecoveryWorld) -> None:
    names = ("lapsed", "live", "dead", "let_go", "paused", "unheard")
    tasks = {name: Task(world, task_id=name) for name in (*names, "at_work", "heard", "failed", "new_pause")}
    for one in tasks.values():
        one.next()
    leases = {name: one.taken.lease for name, one in tasks.items() if one.taken}
    world.ledger.let_go(leases["let_go"])
    for name, state in (("paused", "paused"), ("unheard", "succeeded"), ("heard", "succeeded"), ("failed", "failed")):
        world.ledger.finish(leases[name], ExecutionState(state), result=None, reason="sleeps")
    world.ledger.heard(leases["heard"])
    world.pass_time(1_000)
    for name in ("at_work", "dead"):
        tasks[name].beat()
    tasks["live"].beat(idle=1_000)
    world.ledger.finish(leases["new_pause"], ExecutionState.PAUSED, result=None)
    found = {one.execution.task_id: one for one in world.stalled(dead=[(tasks["dead"].pk, 1)]).values()}
    assert {name: one.basis for name, one in found.items()} == {
        "lapsed": "lapsed", "let_go": "lapsed", "live": "live", "dead": "dead", "paused": "paused", "unheard": "unheard"
    }  # fmt: skip
    assert found["lapsed"].lease_left == pytest.approx(TTL - 1_000, abs=5)
    assert (found["let_go"].lease_left, found["let_go"].idle) == (None, None)
    assert found["let_go"].since == pytest.approx(1_000, abs=5)
    assert found["live"].leased
    assert found["live"].idle == pytest.approx(1_000, abs=5)
    assert found["dead"].leased
    assert found["paused"].pause_reason == "sleeps"
    assert found["unheard"].since == pytest.approx(1_000, abs=5)
    assert (found["unheard"].deaths, found["paused"].deaths, found["lapsed"].deaths) == (0, 0, 1)
    for each in found.values():
        assert world.as_it_stands(each.execution).state is each.state


def test_a_silence_below_the_floor_or_the_step_s_own_timeout_is_none(task: Task) -> None:
    world = task.world
    task.beat(idle=0.0, step="train", step_timeout=3_600.0)
    world.pass_time(700)
    task.beat(idle=700, step="train", step_timeout=3_600.0)
    assert world.stalled() == {}
    task.beat(idle=700, step="page", step_timeout=60.0)
    [found] = world.stalled().values()
    assert (found.step, found.step_timeout) == ("page", 60.0)
    assert world.stalled(stall_floor=800) == {}


def test_the_longest_stalled_come_first_and_the_limit_cuts_the_rest(world: RecoveryWorld) -> None:
    for number in range(4):
        Task(world, map_index=number).next()
        world.pass_time(10)
    world.pass_time(60)
    assert [one.execution.map_index for one in world.stalled(limit=3).values()] == [0, 1, 2]


def test_what_is_left_alone_does_not_starve_what_is_new(world: RecoveryWorld) -> None:
    old = [Task(world) for _ in range(3)]
    for one in old:
        one.next()
    world.pass_time(500)
    for stall in world.stalled().values():
        world.recovery.found(stall, Leave("gone", 300.0, final=True))
    young = Task(world)
    young.next()
    young.die()
    assert list(world.stalled(limit=1)) == [young.execution]


def test_nobody_asks_for_what_never_ran(world: RecoveryWorld) -> None:
    assert world.recovery.execution(ExecutionId("no", "such", "task")) is None


def test_lapsed_leases_are_not_believed_right_after_the_server_s_start(task: Task) -> None:
    task.die()
    assert task.world.stalled(settled=1e6) == {}
    # A process that is known to be gone needs no lease to say so.
    [found] = task.world.stalled(settled=1e6, dead=[(task.pk, 1)]).values()
    assert found.basis == "dead"
    assert list(task.world.stalled()) == [task.execution]


@pytest.mark.parametrize("minutes", [10, -10])
def test_a_worker_s_clock_that_is_off_changes_nothing(task: Task, minutes: int) -> None:
    wrong = datetime.now(UTC) + timedelta(minutes=minutes)
    task.step("page", ended_at=wrong)
    task.beat(step="mail")
    assert task.world.stalled() == {}
    task.step("more", ended_at=wrong)
    task.world.pass_time(29)
    assert task.world.stalled() == {}
    task.world.pass_time(2)
    [found] = task.world.stalled().values()
    assert found.lease_left == pytest.approx(-1, abs=1)
    assert found.idle == pytest.approx(31, abs=1)


# --- what an execution's attempts tell ---


def test_deaths_are_counted_since_the_last_outcome_and_since_the_last_step(task: Task) -> None:
    assert task.taken is not None
    task.world.ledger.finish(task.taken.lease, ExecutionState.PAUSED, result=None)
    for records in (False, True, False):
        task.next()
        if records:
            task.step("page")
        task.die()
    stall = task.stall
    assert (stall.deaths, stall.deaths_here) == (3, 2)
    assert stall.place == "after step 'page'"


def test_requeues_of_successes_are_counted_for_themselves(task: Task) -> None:
    task.die()
    requeue(task)
    taken = task.next()
    task.world.ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
    assert (task.stall.recoveries, task.stall.unheard) == (1, 0)
    requeue(task)
    taken = task.next()
    task.world.ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
    assert (task.stall.recoveries, task.stall.unheard) == (2, 1)


def test_a_person_s_undo_is_no_success_that_airflow_would_hear_of(world: RecoveryWorld) -> None:
    undo = Task(world, task_id="pay/undo")
    taken = undo.next()
    world.ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
    world.pass_time(1_000)
    assert world.stalled() == {}


def test_a_person_s_clear_begins_the_count_anew_and_ours_does_not(task: Task) -> None:
    world = task.world
    task.die()
    requeue(task)
    task.next()
    task.die()
    assert (task.stall.deaths, task.stall.recoveries) == (2, 1)
    task.cleared()
    task.next()
    task.die()
    assert (task.stall.deaths, task.stall.deaths_here, task.stall.recoveries) == (1, 1, 0)
    assert task.stall.requeued_ago is None
    requeue(task)
    world.pass_time(100)
    task.next()
    task.die()
    assert (task.stall.deaths, task.stall.recoveries) == (2, 1)
    assert task.stall.requeued_ago == pytest.approx(140, abs=5)


@pytest.mark.parametrize(
    ("recorded", "hand", "place"),
    [
        (None, None, "before the first step was recorded"),
        (None, "split", "in step 'split'"),
        ("split", None, "after step 'split'"),
        ("split", "split", "after step 'split'"),
        ("split", "mail", "in step 'mail'"),
    ],
)
def test_the_place_of_a_death_is_named(task: Task, recorded: str | None, hand: str | None, place: str) -> None:
    if recorded is not None:
        task.step(recorded)
    task.beat(step=hand)
    task.die()
    assert task.stall.place == place
    # An attempt that dies before its first heartbeat names nothing: the one before it did.
    task.next()
    task.die()
    assert task.stall.place == place
    [(died_in,)] = task.world.behind.execute(
        "select died_in from aiflow.attempt where execution_id = %s and fence = 1", [task.pk]
    ).fetchall()
    assert died_in == hand


def test_a_step_whose_name_can_t_be_read_is_a_step(task: Task) -> None:
    task.step("page")
    task.world.behind.execute("update aiflow.event set data = 'gAAAAA' where execution_id = %s", [task.pk])
    task.die()
    assert task.stall.place == "after the last recorded step"


def test_the_author_s_word_is_kept_with_the_attempt(world: RecoveryWorld) -> None:
    task = Task(world)
    task.next(recovery="careful", max_recoveries=2)
    assert (task.stall.recovery, task.stall.max_recoveries) == ("careful", 2)
    task.next()
    assert (task.stall.recovery, task.stall.max_recoveries) == ("auto", None)


def test_open_effects_are_counted_with_the_time_until_their_calls_ended(task: Task) -> None:
    assert task.taken is not None
    done, open_ = an_intent(an_effect()), an_intent(an_effect(), timeout=100.0)
    for intent in (done, open_):
        task.world.ledger.intend(task.taken.lease, intent)
    task.world.ledger.settle(done.intent_id, "succeeded", result=None)
    task.die()
    assert task.stall.open_work.count == 1
    assert task.stall.open_work.gone_in == pytest.approx(90, abs=5)
    task.world.pass_time(100)
    assert task.stall.open_work.gone_in < 0


def test_the_owners_at_work_here_are_listed(task: Task) -> None:
    owner = owner_of(uuid7(1))
    at_work = task.world.recovery.at_work
    [(pk, fence, found)] = at_work(boot_id=owner.boot_id, pid_namespace=owner.pid_namespace)
    assert (pk, fence, found.pid) == (task.pk, 1, 4711)
    assert at_work(boot_id="another", pid_namespace=owner.pid_namespace) == []
    assert at_work(boot_id=owner.boot_id, pid_namespace=1) == []
    task.die()
    assert at_work(boot_id=owner.boot_id, pid_namespace=owner.pid_namespace) == []


def test_dags_of_ours_are_known(task: Task) -> None:
    assert set(task.world.recovery.knows_dag(["billing", "another"])) == {"billing"}
    assert set(task.world.recovery.knows_dag([])) == set()


# --- when it is looked at again ---


def test_what_was_looked_at_is_left_alone_for_as_long_as_was_said(task: Task) -> None:
    task.die()
    task.world.recovery.found(task.stall, Leave("wait", 50.0))
    assert task.world.stalled() == {}
    task.world.pass_time(49)
    assert task.world.stalled() == {}
    task.world.pass_time(2)
    assert task.world.stalled()[task.execution].first_seen == pytest.approx(51, abs=2)


def test_another_sign_is_another_look(task: Task) -> None:
    """Else who is left alone because it is at work could die unseen."""
    world = task.world
    world.pass_time(700)
    task.beat(idle=700)
    [live] = world.stalled().values()
    world.recovery.found(live, Leave("it is at work", 5_000.0))
    assert world.stalled() == {}
    [dead] = world.stalled(dead=[(task.pk, 1)]).values()
    assert (dead.basis, dead.first_seen) == ("dead", None)
    world.recovery.found(dead, Leave("it has just died", 2.0))
    assert world.stalled(dead=[(task.pk, 1)]) == {}
    world.pass_time(31)
    [lapsed] = world.stalled().values()
    incident = world.recovery.found(lapsed, Requeue(DEAD, "dead"))
    assert lapsed.basis == "lapsed"
    assert incident.detected_after == pytest.approx(1, abs=1)


def test_a_new_attempt_is_another_find(task: Task) -> None:
    task.die()
    task.world.recovery.found(task.stall, Leave("wait", 5_000.0))
    task.next()
    task.die()
    assert task.world.stalled()[task.execution].first_seen is None


@pytest.mark.parametrize(
    ("decision", "known", "next_look"),
    [
        (Leave("gone", 300.0, final=True), 100, 300),
        (Leave("gone", 300.0, final=True), 10_000, 5_000),
        (Leave("gone", 300.0, final=True), 10**7, 86_400),
        (Quarantine(DEAD, "thrice"), 10_000, 5_000),
        (Leave("its DAG is paused", 300.0), 10**7, 300),
        (Requeue(DEAD, "dead"), 10**7, 30),
    ],
)
def test_what_is_final_is_looked_at_ever_more_seldom(
    task: Task, decision: Leave | Quarantine | Requeue, known: float, next_look: float
) -> None:
    task.die()
    task.world.recovery.found(task.stall, decision)
    task.world.pass_time(known)
    task.world.recovery.found(task.stall, decision)
    task.world.pass_time(next_look - 3)
    assert task.world.stalled() == {}
    task.world.pass_time(6)
    assert list(task.world.stalled()) == [task.execution]


def test_a_long_pause_is_looked_at_ever_more_seldom(task: Task) -> None:
    assert task.taken is not None
    task.world.ledger.finish(task.taken.lease, ExecutionState.PAUSED, result=None)
    task.world.pass_time(100)
    task.world.recovery.found(task.stall, Leave("paused", 30.0))
    task.world.pass_time(2_000)
    task.world.recovery.found(task.stall, Leave("paused", 30.0))
    task.world.pass_time(190)
    assert task.world.stalled() == {}
    task.world.pass_time(20)
    assert list(task.world.stalled()) == [task.execution]


# --- incidents ---


def test_a_fence_is_one_incident_however_often_it_is_found(task: Task) -> None:
    recovery = task.world.recovery
    task.die()
    first = recovery.found(task.stall, Leave("wait"))
    assert (first.decision, first.kind) == ("leave", DEAD)
    assert first.detected_after == pytest.approx(10, abs=2)
    task.world.pass_time(100)
    second = recovery.found(task.stall, Requeue(DEAD, "dead", report=True))
    assert (second.number, second.decision, second.why) == (first.number, "requeue", "dead")
    assert second.detected_after == first.detected_after
    later = recovery.found(task.stall, Leave("Airflow is bringing an attempt"))
    assert (later.number, later.decision, later.why) == (first.number, "requeue", "dead")
    [(evidence, count)] = task.world.behind.execute(
        "select evidence, count(*) over () from aiflow.incident where execution_id = %s", [task.pk]
    ).fetchall()
    assert count == 1
    assert json.loads(evidence) | {"hostname": "worker-7.é", "pid": 4711, "deaths": 1} == json.loads(evidence)


def test_one_alert_is_sent_for_an_incident_and_one_more_where_it_is_given_up(task: Task) -> None:
    recovery = task.world.recovery
    task.die()
    recovery.found(task.stall, Leave("wait"))
    assert recovery.unalerted() == []
    recovery.found(task.stall, Requeue(DEAD, "dead", report=True))
    [told] = recovery.unalerted()
    assert (told.execution, told.decision) == (task.execution, "requeue")
    recovery.alerted([told.number])
    assert recovery.unalerted() == []
    assert recovery.found(task.stall, Requeue(DEAD, "dead", report=True)).alerted
    assert recovery.unalerted() == []
    recovery.found(task.stall, Quarantine(DEAD, "thrice"))
    assert [one.why for one in recovery.unalerted()] == ["thrice"]
    recovery.alerted([told.number])
    recovery.found(task.stall, Quarantine(DEAD, "thrice"))
    assert recovery.unalerted() == []
    task.next()
    task.die()
    recovery.found(task.stall, Leave("its DAG is paused", report=True))
    assert len(recovery.unalerted(limit=1)) == 1


def test_looks_that_nobody_was_to_hear_of_do_not_pile_up(task: Task) -> None:
    for _ in range(3):
        task.die()
        task.world.recovery.found(task.stall, Leave("wait"))
        task.next()
    task.die()
    task.world.recovery.found(task.stall, Leave("wait"))
    rows = task.world.behind.execute("select fence, decision::text from aiflow.incident order by fence").fetchall()
    assert rows == [(4, "leave")]
    # A success that was heard of is no incident, and ends one.
    settled = task.world.recovery.found(task.stall, Settle("Airflow says success"))
    assert (settled.number, settled.decision) == (0, "settle")
    assert task.world.behind.execute("select count(*) from aiflow.incident").fetchall() == [(0,)]
    made = task.world.recovery.found(task.stall, Requeue(StallKind.UNHEARD, "it succeeded", report=True))
    settled = task.world.recovery.found(task.stall, Settle("Airflow says success"))
    assert (settled.number, settled.decision, settled.kind) == (made.number, "settle", StallKind.UNHEARD)


def test_what_never_ran_durable_is_noted_once(world: RecoveryWorld) -> None:
    run = ExecutionId("billing", "run", "", -1)
    idle = Leave("nothing moves", 60.0, report=True)
    first = world.recovery.noted(run, StallKind.IDLE_RUN, idle, age=700.0)
    assert first is not None
    assert (first.execution, first.kind, first.detected_after) == (run, StallKind.IDLE_RUN, 700.0)
    assert world.recovery.noted(run, StallKind.IDLE_RUN, idle, age=700.0) is None
    [told] = world.recovery.unalerted()
    world.recovery.alerted([told.number])
    world.pass_time(61)
    again = world.recovery.noted(run, StallKind.IDLE_RUN, idle, age=761.0)
    assert again is not None
    assert (again.number, again.alerted) == (first.number, True)
    assert world.recovery.noted(run, StallKind.NOT_STARTED, idle, age=1.0) != first
    # Days later it is news.
    world.pass_time(200_000)
    world.recovery.noted(run, StallKind.IDLE_RUN, idle, age=5.0)
    assert first.number in {one.number for one in world.recovery.unalerted()}


# --- marks ---


def requeue(task: Task) -> None:
    """Do what recovery does, and let Airflow clear it."""
    marked = task.world.recovery.mark([task.stall])
    assert len(marked) == 1
    task.cleared()
    task.world.recovery.cleared(marked)


def test_a_mark_is_one_s_alone(task: Task) -> None:
    """C05: twice at once, then once more after it was requeued."""
    world = task.world
    task.die()
    stall, barrier = task.stall, threading.Barrier(8)

    def mark(_: int) -> int:
        barrier.wait()
        return len(world.recovery.mark([stall]))

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(mark, range(8))) == [0] * 7 + [1]
    assert world.stalled() == {}
    assert world.recovery.mark([stall]) == []
    task.cleared()
    world.recovery.cleared([replace(stall, marks=1)])
    assert world.recovery.mark([stall]) == []
    assert world.marks(task.pk) == [(1, "cleared", 0, 1, 1)]
    taken = task.next()
    assert taken.requeued
    assert world.marks(task.pk) == [(1, "consumed", 0, 1, 1)]
    assert world.recovery.mark([stall]) == []


def test_many_marks_at_once_of_one_run_share_it_without_a_deadlock(world: RecoveryWorld) -> None:
    run_id = f"run-{uuid4()}"
    tasks = [Task(world, run_id=run_id, map_index=number) for number in range(40)]
    for one in tasks:
        one.next()
    world.pass_time(60)
    stalls = list(world.stalled().values())
    barrier = threading.Barrier(4)

    def mark(turned: bool) -> set[int]:
        barrier.wait()
        return {one.execution_pk for one in world.recovery.mark(stalls[::-1] if turned else stalls)}

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(mark, [False, True, False, True]))
    assert sum(map(len, won)) == len(set().union(*won)) == 40


def test_marks_are_made_for_one_run(world: RecoveryWorld) -> None:
    tasks = [Task(world), Task(world)]
    for one in tasks:
        one.next()
    world.pass_time(60)
    with pytest.raises(ValueError, match="one run at a time"):
        world.recovery.mark([one.stall for one in tasks])
    assert world.recovery.mark([]) == []


@pytest.mark.parametrize("what", ["took over", "renewed", "finished", "heard"])
def test_a_stall_that_is_over_is_not_marked(task: Task, what: str) -> None:
    world = task.world
    assert task.taken is not None
    if what == "heard":
        world.ledger.finish(task.taken.lease, ExecutionState.SUCCEEDED, result=None)
    task.die()
    stall = task.stall
    if what == "took over":
        task.next()
        world.pass_time(60)
    elif what == "renewed":
        task.beat()
    elif what == "finished":
        world.ledger.finish(task.taken.lease, ExecutionState.SUCCEEDED, result=Stored(inline=b"1"))
    else:
        world.ledger.heard(task.taken.lease)
    assert world.recovery.mark([stall]) == []
    assert world.marks(task.pk) == []


def test_a_live_lease_is_passed_over_for_the_dead_alone(task: Task) -> None:
    stall = task.stall
    assert stall.leased
    assert task.world.recovery.mark([stall]) == []
    assert len(task.world.recovery.mark([stall], dead=[(task.pk, 1)])) == 1


def test_what_hangs_is_marked_unless_it_went_on(task: Task) -> None:
    world = task.world
    world.pass_time(700)
    task.beat(idle=700, step="page")
    [stall] = world.stalled().values()
    task.beat(idle=1.0, step="mail")
    assert world.recovery.mark([stall]) == []
    world.pass_time(700)
    task.beat(idle=701, step="mail")
    [stall] = world.stalled().values()
    assert len(world.recovery.mark([stall])) == 1


def test_a_beat_on_its_way_counts(task: Task) -> None:
    world = task.world
    task.die()
    stall = task.stall
    marked: list[Stall] = []
    with world.behind.transaction():
        world.behind.execute(
            "update aiflow.lease set expires_at = now() + interval '30 s' where execution_id = %s", [task.pk]
        )
        marking = threading.Thread(target=lambda: marked.extend(world.recovery.mark([stall])))
        marking.start()
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        while world.connections.ask(waits) == [(0,)]:
            assert marking.is_alive()
    marking.join()
    assert marked == []


def test_a_mark_that_a_dead_process_left_is_soon_nobody_s(task: Task) -> None:
    world = task.world
    task.die()
    [first] = world.recovery.mark([task.stall])
    world.pass_time(MARK_SECONDS - 2)
    assert world.stalled() == {}
    world.pass_time(4)
    [again] = world.stalled().values()
    assert (again.marked, again.marks, again.recoveries) == (True, 1, 0)
    [second] = world.recovery.mark([again])
    # Whoever was thought dead comes late: its word about its own mark changes nothing.
    world.recovery.void([first])
    world.recovery.cleared([first])
    assert [row[1] for row in world.marks(task.pk)] == ["marked"]
    assert world.recovery.mark([again]) == []
    # Its clear may have gone through nevertheless.
    task.cleared()
    task.cleared()
    world.recovery.cleared([second])
    assert task.next().requeued


def test_a_pass_that_goes_on_where_another_was_broken_off_keeps_why_it_was_begun(task: Task) -> None:
    world = task.world
    task.die()
    [first] = world.recovery.mark([task.stall])
    world.recovery.found(first, Requeue(StallKind.HUNG, "no step was recorded"))
    world.pass_time(REQUEUED_SECONDS + 1)
    [again] = world.stalled().values()
    assert again.marked
    # By then Airflow says failed, for it was told so.
    wish = Requeue(StallKind.EXHAUSTED, "Airflow gave it up")
    told = world.recovery.found(again, wish)
    assert (told.kind, told.why) == (StallKind.HUNG, "no step was recorded")
    [second] = world.recovery.mark([again])
    world.recovery.cleared([second])
    assert world.recovery.found(replace(again, marked=False), wish).kind is StallKind.EXHAUSTED


def test_a_requeue_that_was_broken_off_after_its_clear_is_known_until_it_is_made_up_for(world: RecoveryWorld) -> None:
    broken, told, late = (Task(world, task_id=name) for name in ("broken", "told", "late"))
    for one in (broken, told, late):
        one.next()
    world.pass_time(100)
    marks = {one.execution: mark for one in (broken, told, late) for mark in world.recovery.mark([one.stall])}
    world.recovery.cleared([marks[told.execution]])
    assert world.recovery.broken_off() == []
    for one in (broken, told, late):
        one.cleared()
        assert one.next().requeued
    # The attempt was quicker than the word that all was cleared.
    world.recovery.cleared([marks[late.execution]])
    assert [world.marks(one.pk)[0][1::3] for one in (broken, told, late)] == [
        ("consumed", 0), ("consumed", 1), ("consumed", 1)
    ]  # fmt: skip
    # Somebody may still be about to tell.
    assert world.recovery.broken_off() == []
    world.pass_time(MARK_SECONDS + 1)
    assert world.recovery.broken_off() == [(broken.pk, 1, broken.execution)]
    world.recovery.made_up([(broken.pk, 1)])
    assert world.recovery.broken_off() == []


def test_a_slow_process_s_clear_stands_against_who_thought_it_dead(task: Task) -> None:
    world = task.world
    task.die()
    [slow] = world.recovery.mark([task.stall])
    world.pass_time(MARK_SECONDS + 1)
    [seen] = world.stalled().values()
    world.recovery.cleared([slow])
    assert world.recovery.mark([seen]) == []


def test_a_mark_that_was_taken_back_is_free_at_once(task: Task) -> None:
    world = task.world
    task.die()
    [marked] = world.recovery.mark([task.stall])
    world.recovery.found(marked, Requeue(DEAD, "dead"))
    world.recovery.void([marked])
    [again] = world.stalled().values()
    assert (again.marked, again.recoveries) == (False, 0)
    assert world.recovery.found(again, Leave("Airflow refused")).decision == "leave"
    [marked] = world.recovery.mark([again])
    task.cleared()
    world.recovery.cleared([marked])
    assert task.next().requeued
    task.die()
    assert task.stall.recoveries == 1


def test_a_cleared_attempt_that_died_unseen_is_requeued_again_and_counted(task: Task) -> None:
    """The ledger never heard of it: the fence is the same."""
    world = task.world
    task.die()
    requeue(task)
    stall = task.stall
    assert (stall.fence, stall.recoveries, stall.marked) == (1, 1, False)
    requeue(task)
    assert task.stall.recoveries == 2
    assert task.next().requeued
    assert world.marks(task.pk) == [(1, "consumed", 0, 2, 2)]


def test_who_was_killed_between_clear_and_word_is_counted(task: Task) -> None:
    task.die()
    task.world.recovery.mark([task.stall])
    task.cleared()
    assert task.next().requeued
    task.die()
    assert task.stall.recoveries == 1


# --- whose clear was it ---


def test_a_person_s_clear_beside_ours_is_a_person_s(task: Task) -> None:
    task.die()
    requeue(task)
    task.cleared()
    taken = task.next()
    assert not taken.requeued
    assert [row[1] for row in task.world.marks(task.pk)] == ["void"]
    task.die()
    assert (task.stall.recoveries, task.stall.deaths) == (0, 1)


def test_a_retry_that_was_faster_than_our_clear_voids_the_mark(task: Task) -> None:
    task.die()
    marked = task.world.recovery.mark([task.stall])
    assert not task.next().requeued
    task.world.recovery.cleared(marked)
    assert [row[1] for row in task.world.marks(task.pk)] == ["void"]


def test_the_same_attempt_that_comes_back_consumes_no_mark(task: Task) -> None:
    before = task.stall.counters
    task.die()
    requeue(task)
    take(task.world.ledger, task.attempt(ti_id=before.ti_id))
    assert [row[1] for row in task.world.marks(task.pk)] == ["void"]


def test_our_later_clears_of_the_same_run_are_no_person_s(world: RecoveryWorld) -> None:
    run_id = f"run-{uuid4()}"
    one, two, three = (Task(world, run_id=run_id, task_id=name) for name in ("one", "two", "three"))
    for task in (one, two, three):
        task.next()
    for task in (one, two):
        task.die()
        requeue(task)
    # A clear raises the number of the run for all its tasks.
    one.clear_number = two.clear_number = three.clear_number = 2
    assert one.next().requeued
    assert two.next().requeued
    three.die()
    [stall] = [found for found in world.stalled().values() if found.execution == three.execution]
    world.recovery.mark([stall])
    assert world.marks(three.pk) == [(1, "marked", 2, 3, 0)]


def test_a_deed_that_may_take_several_clears_reaches_over_all_of_them(world: RecoveryWorld) -> None:
    run_id = f"run-{uuid4()}"
    one, two = (Task(world, run_id=run_id, task_id=name) for name in ("one", "two"))
    for task in (one, two):
        task.next()
    world.pass_time(60)
    world.recovery.mark([one.stall])
    world.recovery.mark([two.stall], clears=3)
    assert world.marks(one.pk)[0][2:4] == (0, 4)
    assert world.marks(two.pk)[0][2:4] == (0, 4)


def test_of_two_marks_at_once_in_one_run_each_reaches_over_the_other_s_clear(world: RecoveryWorld) -> None:
    for _ in range(5):
        run_id = f"run-{uuid4()}"
        tasks = [Task(world, run_id=run_id, task_id=name) for name in ("one", "two", "three", "four")]
        for task in tasks:
            task.next()
        world.pass_time(60)
        stalls, barrier = [task.stall for task in tasks], threading.Barrier(4)

        def mark(stall: Stall, barrier: threading.Barrier = barrier) -> int:
            barrier.wait()
            return len(world.recovery.mark([stall]))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(mark, stalls)) == [1] * 4
        for task in tasks:
            task.clear_number, task.max_tries = 4, 4
            assert task.next().requeued


# --- the ends ---


def test_a_success_is_noted_as_heard_for_its_fence_alone(task: Task) -> None:
    assert task.taken is not None
    task.world.ledger.finish(task.taken.lease, ExecutionState.SUCCEEDED, result=None)
    task.world.pass_time(100)
    [stall] = task.world.stalled().values()
    assert task.world.recovery.heard(stall)
    assert task.world.stalled() == {}
    task.next()
    assert not task.world.recovery.heard(stall)


def test_a_heartbeat_after_the_end_finds_nothing_to_renew(task: Task) -> None:
    """C36: what is done is never requeued, whatever comes late."""
    assert task.taken is not None
    task.world.ledger.finish(task.taken.lease, ExecutionState.SUCCEEDED, result=None)
    task.world.ledger.heard(task.taken.lease)
    assert not task.beat()
    task.world.pass_time(10_000)
    assert task.world.stalled(dead=[(task.pk, 1)]) == {}


def test_news_of_a_duplicate_does_not_touch_its_owner(task: Task) -> None:
    """C03: whatever Airflow says, a live lease is no stall, and nothing can be marked."""
    task.beat()
    assert task.world.stalled() == {}
    assert task.world.recovery.mark([task.stall]) == []
    assert task.beat()


def test_open_effects_of_what_no_attempt_will_visit_are_put_in_doubt_once_their_calls_ended(task: Task) -> None:
    world = task.world
    assert task.taken is not None
    intents = {name: an_intent(an_effect(), timeout=seconds) for name, seconds in (("short", 5.0), ("long", 500.0))}
    settled = an_intent(an_effect())
    for intent in (*intents.values(), settled):
        world.ledger.intend(task.taken.lease, intent)
    world.ledger.settle(settled.intent_id, "succeeded", result=None)
    assert world.recovery.abandon(task.stall) == 0  # its lease is live
    task.die()
    stall = task.stall
    assert world.recovery.abandon(stall) == 1
    assert world.recovery.abandon(stall) == 0
    assert [one.effect.effect for one in world.inbox.waiting() if one.effect] == [intents["short"].effect]
    world.pass_time(600)
    assert world.recovery.abandon(replace(stall, fence=9)) == 0
    assert world.recovery.abandon(stall) == 1


def test_histories_come_from_first_attempts_and_from_the_step_in_hand(world: RecoveryWorld) -> None:
    for number in range(7):
        done = Task(world, map_index=number)
        done.next()
        for each in range(3):
            done.step("page", occurrence=each, duration_ms=1_000.0 * (number + 1))
        world.pass_time(10)
        assert done.taken is not None
        world.ledger.finish(done.taken.lease, ExecutionState.SUCCEEDED, result=None)
        world.ledger.heard(done.taken.lease)
    live, lapsed, other = Task(world), Task(world), Task(world, task_id="another")
    for task in (live, lapsed, other):
        task.next()
        task.beat(step="page")
    history = world.recovery.histories([live.stall, lapsed.stall, other.stall])
    assert history[live.pk].task_p50 == pytest.approx(10, abs=1)
    assert history[live.pk].step_p95 == pytest.approx(7)
    assert (history[other.pk].task_p50, history[other.pk].step_p95) == (None, None)
    world.pass_time(60)
    assert world.recovery.histories([lapsed.stall])[lapsed.pk].step_p95 is None
    assert world.recovery.histories([]) == {}


def test_the_pulse_tells_what_of_the_requeued_died_again(world: RecoveryWorld) -> None:
    assert world.recovery.pulse().probe_ago is None
    tasks = {name: Task(world) for name in ("died", "died_and_retried", "lives", "succeeded", "unknown", "waits")}
    for task in tasks.values():
        task.next()
        task.die()
    for name, task in tasks.items():
        requeue(task)
        if name not in ("waits", "unknown"):
            task.next()
    assert world.recovery.pulse().last_minute == 6
    done = tasks["succeeded"].taken
    assert done is not None
    world.ledger.finish(done.lease, ExecutionState.SUCCEEDED, result=None)
    world.pass_time(70)
    tasks["lives"].beat()
    tasks["died_and_retried"].next()
    tasks["unknown"].next()
    pulse = world.recovery.pulse()
    assert (pulse.requeued, pulse.died_again, pulse.last_minute) == (4, 2, 0)
    assert pulse.probe_ago == pytest.approx(70, abs=5)
    world.pass_time(600)
    assert world.recovery.pulse().requeued == 0


def test_a_pass_asks_as_the_role_that_tasks_use(world: RecoveryWorld) -> None:
    assert world.recovery.stalled(SCAN) == []
    [(user,)] = world.connections.ask("select current_user::text")
    assert user == "aiflow"
